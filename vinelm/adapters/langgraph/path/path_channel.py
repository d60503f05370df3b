"""The private channel that carries a request's path through the workflow's own checkpoints."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NotRequired, TypedDict, TypeGuard

from langchain_core.runnables import RunnableConfig
from langgraph.channels.base import BaseChannel
from langgraph.errors import EmptyChannelError, InvalidUpdateError
from langgraph.runtime import Runtime

from vinelm.errors import WorkflowError
from vinelm.plans.assignment import KeptAssigned
from vinelm.template import Template
from vinelm.template.flow import Flow

WITHIN = "/"
"""Separator between the name of a node and that of a node in its inner graph, if a stage is named by both."""
PATH_KEY = "vinelm_path"
"""Name of the channel: visible in ``get_state().values`` and in ``stream_mode="values"``, absent from results and schemas."""


@dataclass(slots=True, eq=False)
class ChannelSession:
    """What is known of the channels that LangGraph opened for one run. It exists as long as LangGraph uses these channels.

    Attributes:
        at_s: when LangGraph opened the channels (at the call of invoke), in ``time.monotonic()`` seconds.
        owned: objects to keep as long as the run lives, each keyed by the object that stored it here.
        is_stored: whether the graph's checkpoints carry the path.
    """

    at_s: float
    owned: dict[Any, Any] = field(default_factory=dict)
    is_stored: bool = True


class ShownOutcome(TypedDict):
    """The outcome of an invocation in stored form: its signal and answer class, as in :class:`~vinelm.signals.Outcome`.

    If the invocation gave the first answer of its class, ``first`` holds the state's values that form the answer.
    """

    signal: str | None
    answer_class: int | None
    first: NotRequired[dict[str, Any]]


class Entry(TypedDict):
    """One invocation as stored in the path: its index in the path (from 0), stage and model.

    ``request`` is the request's id if the caller gave one. ``usd`` is the cost in dollars, failed attempts included, that the
    run recorded since the previous entry. It is absent if the cost is 0, or if an older version that recorded no costs wrote
    the entry. ``account`` is the key of the request's account, which sums the payments of all its runs. ``assigned`` states
    which plan the request was assigned, if requests are divided between plans. ``kind`` is the request's type, for which the
    plan was made. ``shown`` is the invocation's outcome, once a later node has written it.
    """

    k: int
    stage: str
    model: str
    request: NotRequired[str]
    usd: NotRequired[float]
    account: NotRequired[str]
    assigned: NotRequired[KeptAssigned]
    kind: NotRequired[str]
    shown: NotRequired[ShownOutcome]


class Note(TypedDict):
    """An item written to the channel, which adds the outcome ``shown`` to the path's invocation with index ``k``."""

    k: int
    shown: ShownOutcome


class PathValue(TypedDict):
    """The value of the path channel: the request's invocations so far, and whether the run that wrote them has ended."""

    path: list[Entry]
    closed: bool


class Execution(NamedTuple):
    """One attempt of a node.

    Attributes:
        task: id of LangGraph's task that runs the node.
        attempt: LangGraph's number of the attempt.
        order: the text by which LangGraph orders the updates of a superstep.
    """

    task: str
    attempt: int
    order: str


class PathChannel(BaseChannel[PathValue, list[Entry | Note], PathValue]):
    """The channel of the graph's state that stores a request's path, with an entry for each invocation of a stage.

    An entry is written together with its stage's update, so that a retry or replay leaves a single entry. An entry with
    position k replaces the entries from k on. The branches of a fan-out write the same entry; the path has it once, with the
    total cost of all branches. If a branch is repeated in another run, it may use another model; then the first branch's entry
    is kept.

    Each of several parallel stages writes an entry with a different position. If two different stages write entries with the
    same position in one superstep, an error is raised. Runs without a plan are an exception: the stages get consecutive
    positions, since no template orders them. In such runs, each ``VineLM`` object of the application (for example one per file)
    counts positions separately.

    A note adds an outcome to the entry at its position; only the first note counts. Entries of chat models stay pending in the
    channel until the superstep ends (:meth:`wait`). The end of a run only closes the path; :func:`is_new_request` decides
    whether the next stage continues the path.

    Attributes:
        path: the entries so far.
        closed: whether the run that wrote them has ended.
        is_unplanned: whether the stages run without a plan, so that they get consecutive positions.
        opening: the run that LangGraph opened this channel for; None before that.
        waiting: for each id of a LangGraph task, the current attempt of its node and the entries that it has pending.
    """

    __slots__ = ("closed", "is_unplanned", "opening", "path", "waiting")

    def __init__(self, typ: Any = dict, key: str = PATH_KEY) -> None:
        super().__init__(typ, key)
        self.path: tuple[Entry, ...] = ()
        self.closed = self.is_unplanned = False
        self.opening: ChannelSession | None = None
        self.waiting: dict[str, tuple[Execution, list[Entry | Note]]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PathChannel)

    __hash__ = None  # type: ignore[assignment]

    @property
    def ValueType(self) -> Any:  # noqa: N802 - LangGraph's name
        """The type of the channel's value, as LangGraph asks for it."""
        return dict

    @property
    def UpdateType(self) -> Any:  # noqa: N802 - LangGraph's name
        """The type of an update of the channel, as LangGraph asks for it."""
        return list

    def copy(self) -> PathChannel:
        """Return a channel with the same path, without pending writes."""
        twin = PathChannel.__new__(PathChannel)  # LangGraph copies every channel at every edge
        twin.typ, twin.key = self.typ, self.key
        twin.path, twin.closed, twin.opening, twin.waiting = self.path, self.closed, self.opening, {}
        twin.is_unplanned = self.is_unplanned
        return twin

    def from_checkpoint(self, checkpoint: Any) -> PathChannel:
        """Return the channel for a run that begins now, with the path stored in its thread's checkpoint."""
        fresh = PathChannel(self.typ, self.key)
        fresh.opening = ChannelSession(time.monotonic())
        if isinstance(checkpoint, Mapping):
            fresh.path, fresh.closed = tuple(checkpoint["path"]), bool(checkpoint["closed"])
        return fresh

    def get(self) -> PathValue:
        """Return the path. Before the first invocation, raise :class:`EmptyChannelError`, so that a new thread looks empty."""
        if not self.path:
            raise EmptyChannelError
        return {"path": list(self.path), "closed": self.closed}

    def is_available(self) -> bool:
        """Return whether something was written to the path or waits to be written.

        LangGraph updates only available channels.
        """
        return bool(self.path or self.waiting)

    def wait(self, node: Execution, written: list[Entry | Note]) -> None:
        """Hold the entries ``written`` until the node's superstep ends, and then add them to the path.

        They are dropped if the node fails or is retried.

        LangGraph considers a failed node finished if its task has written anything, and ``invoke(None)`` would skip it. VineLM
        does not see whether the application's own nodes fail, so nothing is written for them before the superstep ends.
        """
        self.waiting[node.task] = node, [*self.waiting_of(node), *written]

    def waiting_of(self, node: Execution | None) -> list[Entry | Note]:
        """Return the pending writes of ``node``, a node's current attempt; empty if there are none."""
        known, written = (None, []) if node is None else self.waiting.get(node.task, (None, []))
        return written if known == node else []

    def update(self, values: Sequence[list[Entry | Note]]) -> bool:
        """Add the path entries and outcomes (notes) that one superstep wrote, pending entries included.

        Returns whether the path has changed.
        """
        if self.waiting:
            # In the order in which LangGraph applies updates: the path must not depend on which task was faster.
            ended, self.waiting = sorted(self.waiting.values(), key=lambda item: item[0].order), {}
            values = [*(written for _, written in ended), *values]
        if not values:
            return False
        if len(values) == 1 and len(values[0]) == 1 and self._is_entry(values[0][0]):  # no fan-out: nothing to compare with
            self.path = (*self.path[: values[0][0]["k"]], values[0][0])
            self.closed = False
            return True
        written = [item for items in values for item in items]
        is_noted = self._note([item for item in written if not self._is_entry(item)])
        placed: dict[int, Entry] = {}
        for entry in filter(self._is_entry, written):
            while self.is_unplanned and entry["k"] in placed and placed[entry["k"]]["stage"] != entry["stage"]:
                entry = {**entry, "k": entry["k"] + 1}  # noqa: PLW2901 - the next place
            first = placed.setdefault(entry["k"], entry)
            if first["stage"] != entry["stage"]:
                names = f"{first['stage']!r} and {entry['stage']!r}"
                raise InvalidUpdateError(
                    f"stages {names} ran in one superstep: put an edge between them, or declare Parallel in the template"
                )
            if first is not entry and "usd" in entry:
                placed[entry["k"]] = {**first, "usd": first.get("usd", 0.0) + entry["usd"]}
        for k in sorted(placed):
            place = min(k, len(self.path))  # less than k if a stage that was to run side by side did not
            self.path = (*self.path[:place], placed[k] if place == k else {**placed[k], "k": place})
            self.closed = False
        return bool(placed) or is_noted

    @staticmethod
    def _is_entry(item: Entry | Note) -> TypeGuard[Entry]:
        return "model" in item

    def _note(self, notes: Sequence[Entry | Note]) -> bool:
        """Store the outcome of each note in the path, at the invocation with the note's index ``k``.

        An invocation that has an outcome keeps it. Returns whether any outcome was added.
        """
        path = list(self.path)
        for note in notes:
            if note["k"] < len(path) and "shown" not in path[note["k"]]:
                path[note["k"]] = {**path[note["k"]], "shown": note["shown"]}
        is_changed = any(one is not other for one, other in zip(path, self.path, strict=True))
        self.path = tuple(path)
        return is_changed

    def finish(self) -> bool:
        """Close the path and return whether it was open and not empty.

        LangGraph also calls this in the middle of a run, when only ``Send`` tasks are left; the next entry opens the path
        again.
        """
        if not self.path or self.closed:
            return False
        self.closed = True
        return True


def is_new_request(
    value: PathValue | None, stage: str, template: Template | None, request_id: str | None, *, is_same_run: bool = False
) -> bool:
    """Return whether the invocation of ``stage`` begins a new request instead of continuing the stored path.

    It does if no path is stored, or if ``request_id`` differs from the id that the path has. Otherwise the template decides:

    - Without a template, a new request begins if the run that wrote the path has ended.
    - If only one stage may begin a request, all other stages continue the path. That stage begins a new request if the run has
      ended, or if the stage cannot come next on the path.
    - If the template branches, each stage that may begin a request is treated like this single first stage. But a run in
      progress begins no other request.

    A closed path does not count as an ended run if the request ids are equal, or if ``is_same_run`` states that the run is
    still in progress. LangGraph closes the path in the middle of a run if only ``Send`` tasks are left.
    """
    if value is None or not value["path"]:
        return True
    written_by = value["path"][-1].get("request")
    if request_id is not None and written_by is not None and written_by != request_id:
        return True
    ended = value["closed"] and not is_same_run and (request_id is None or written_by != request_id)
    if template is None:
        return ended
    places = template.places
    if places is not None:  # a run in progress may have taken a branch that the template lacks, which begins no request
        return not is_same_run and places.ahead_of(0, stage) is not None and (ended or not _may_follow(value, stage, places))
    if stage != template.invocations[0].name:
        return False
    follower = template.stage_after(len(value["path"]))
    return ended or follower is None or follower.name != stage


def _may_follow(value: PathValue, stage: str, flow: Flow) -> bool:
    try:
        return flow.ahead_of(flow.at(stage_names(value)), stage) is not None
    except KeyError:
        return False


def stage_names(value: PathValue | None) -> tuple[str, ...]:
    """Return the stages of the stored path, in order."""
    return () if value is None else tuple(entry["stage"] for entry in value["path"])


def path_of(value: PathValue) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the models and the stages of the stored path, in order."""
    path = value["path"]
    return tuple([entry["model"] for entry in path]), tuple([entry["stage"] for entry in path])


def models_of(value: PathValue | None) -> tuple[str, ...]:
    """Return the models of the stored path, in order."""
    return () if value is None else tuple(entry["model"] for entry in value["path"])


def channel_of(config: RunnableConfig) -> PathChannel | None:
    """Return the path channel of the run that a node's or edge's config belongs to, as of the end of the last superstep.

    Returns None if the graph has no path channel, or if this LangGraph version hides it (it is read through internals).
    """
    for given in getattr(config.get("configurable", {}).get("__pregel_read"), "args", ()):
        if type(given) is dict:
            channel = given.get(PATH_KEY)
            if isinstance(channel, PathChannel):
                return channel
    return None


def raw_channels(config: RunnableConfig) -> dict[str, BaseChannel[Any, Any, Any]] | None:
    """Return the channels of a node's or edge's graph, including LangGraph's own; None if LangGraph hides them."""
    for given in getattr(config.get("configurable", {}).get("__pregel_read"), "args", ()):
        if type(given) is dict and any(isinstance(value, BaseChannel) for value in given.values()):
            return given
    return None


def is_inner(runtime: Runtime[Any]) -> bool:
    """Return whether the node of ``runtime`` is inside a subgraph."""
    info = runtime.execution_info
    return info is not None and "|" in info.checkpoint_ns


def execution_of(config: RunnableConfig) -> Execution | None:
    """Return the node's attempt that ``config`` belongs to; None if LangGraph hides it."""
    info = getattr(config.get("configurable", {}).get("__pregel_runtime"), "execution_info", None)
    if info is None:
        return None
    return Execution(info.task_id, info.node_attempt, str(config.get("metadata", {}).get("langgraph_path", "")))


def shown_of(value: PathValue | None) -> tuple[ShownOutcome | None, ...]:
    """Return the outcome of each invocation of the stored path; None for an invocation without a stored outcome."""
    return () if value is None else tuple(entry.get("shown") for entry in value["path"])


def costs_of(value: PathValue | None) -> tuple[float | None, ...]:
    """Return the recorded cost, in dollars, of each invocation of the stored path; None for an unknown cost."""
    return () if value is None else tuple(entry.get("usd") for entry in value["path"])


def account_of(value: PathValue | None) -> str | None:
    """Return the key of the request's account, which is the last account key stored in the path; None if none is stored."""
    path = () if value is None else reversed(value["path"])
    return next((entry["account"] for entry in path if "account" in entry), None)


def assigned_in(value: PathValue) -> KeptAssigned:
    """Return the plan assigned to the request that wrote the path; empty if no entry stores an assignment."""
    found = (entry["assigned"] for entry in reversed(value["path"]) if "assigned" in entry)
    return next(found, KeptAssigned())


def kind_in(value: PathValue) -> str | None:
    """Return the request type under which the path was planned; None if not stored."""
    return next((entry["kind"] for entry in reversed(value["path"]) if "kind" in entry), None)


def read_path(config: RunnableConfig, *, fresh: bool) -> PathValue | None:
    """Return the path as it is in the graph's channel.

    This is for code whose state does not contain the path: a thread's first node, the target of a Send, or an edge.

    Args:
        config: LangGraph's config of the node or edge.
        fresh: whether to include what the current node has just written.

    Returns:
        The path; None before the first invocation.

    Raises:
        WorkflowError: the graph lacks the path channel, or LangGraph lacks the internal function that reads it.
    """
    channel = channel_of(config)
    if not fresh and channel is not None:
        return channel.get() if channel.path else None
    read = config.get("configurable", {}).get("__pregel_read")
    if read is None:
        raise WorkflowError("this LangGraph gives no reader for a stage behind a Send: use one that VineLM was tested with")
    try:
        values: Mapping[str, Any] = read([PATH_KEY], fresh)
    except KeyError:
        raise WorkflowError(
            "the graph lacks VineLM's channel: leave input_schema= out of add_node and give the type to vine.stage(..., state=)"
        ) from None
    value = values.get(PATH_KEY)
    if channel is None or not channel.waiting:
        return value
    return with_waiting(value, channel, channel.waiting_of(execution_of(config)))


def with_waiting(value: PathValue | None, channel: PathChannel, own: list[Entry | Note]) -> PathValue | None:
    """Return the path as it will be after a node's superstep; None if the path is still empty.

    It is ``value`` with the node's pending entries ``own`` added. ``channel`` is the graph's path channel. It stays unchanged:
    a copy of it applies the entries.
    """
    if not own:
        return value
    twin = channel.copy()
    if value is not None:
        twin.path, twin.closed = tuple(value["path"]), value["closed"]
    twin.update([own])
    return twin.get() if twin.path else None
