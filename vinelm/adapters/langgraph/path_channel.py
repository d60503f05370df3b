"""The private channel that carries a request's path through the workflow's own checkpoints (DESIGN §7)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.channels.base import BaseChannel
from langgraph.errors import EmptyChannelError, InvalidUpdateError

from vinelm.template import Template

PATH_KEY = "vinelm_path"
"""Name of the channel: visible in ``get_state().values`` and in ``stream_mode="values"``, absent from results and schemas."""


@dataclass(slots=True, eq=False)
class ChannelSession:
    """One run's channels, as long as LangGraph holds them. ``at_s`` is when it opened them, in monotonic seconds: the call of
    invoke, tools before the first stage included. ``owned`` is whatever should live as long as the run, by its owner.
    """

    at_s: float
    owned: dict[Any, Any] = field(default_factory=dict)


class Entry(TypedDict):
    """One invocation: its place in the path from 0, its stage, its model, and the request's id where the caller gave one."""

    k: int
    stage: str
    model: str
    request: NotRequired[str]


class PathValue(TypedDict):
    """The entries so far, and whether the run that wrote them has ended."""

    path: list[Entry]
    closed: bool


class PathChannel(BaseChannel[PathValue, list[Entry], PathValue]):
    """Entries of one request, written together with the update of their stage, so that a retry or a replay leaves one.

    An entry with place k replaces whatever stood at k and after it. Branches of a fan-out write the same entry, kept once; one
    that another run made up for may have used another model, and then the first branch's stands for all. Different stages for
    one place in one superstep are refused. The end of a run only closes the path: whether the next
    stage continues it, is for :func:`is_new_request` to say.
    """

    __slots__ = ("closed", "opening", "path")

    def __init__(self, typ: Any = dict, key: str = PATH_KEY) -> None:
        super().__init__(typ, key)
        self.path: tuple[Entry, ...] = ()
        self.closed = False
        self.opening: ChannelSession | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PathChannel)

    __hash__ = None  # type: ignore[assignment]

    @property
    def ValueType(self) -> Any:  # noqa: N802 - LangGraph's name
        """The type of the value."""
        return dict

    @property
    def UpdateType(self) -> Any:  # noqa: N802 - LangGraph's name
        """The type of an update."""
        return list

    def copy(self) -> PathChannel:
        """A channel with the same path."""
        twin = PathChannel.__new__(PathChannel)  # LangGraph copies every channel at every edge
        twin.typ, twin.key = self.typ, self.key
        twin.path, twin.closed, twin.opening = self.path, self.closed, self.opening
        return twin

    def from_checkpoint(self, checkpoint: Any) -> PathChannel:
        """The channel of a run that opens now, with the path that its thread has stored."""
        fresh = PathChannel(self.typ, self.key)
        fresh.opening = ChannelSession(time.monotonic())
        if isinstance(checkpoint, Mapping):
            fresh.path, fresh.closed = tuple(checkpoint["path"]), bool(checkpoint["closed"])
        return fresh

    def get(self) -> PathValue:
        """The path; :class:`EmptyChannelError` before the first invocation, so that a new thread looks empty."""
        if not self.path:
            raise EmptyChannelError
        return {"path": list(self.path), "closed": self.closed}

    def is_available(self) -> bool:
        """Whether any invocation was written."""
        return bool(self.path)

    def update(self, values: Sequence[list[Entry]]) -> bool:
        """Add the entries of one superstep."""
        if not values:
            return False
        placed: dict[int, Entry] = {}
        for entry in (entry for entries in values for entry in entries):
            first = placed.setdefault(entry["k"], entry)
            if first["stage"] != entry["stage"]:
                names = f"{first['stage']!r} and {entry['stage']!r}"
                raise InvalidUpdateError(f"stages {names} ran in one superstep: put an edge between them")
        for k in sorted(placed):
            self.path = (*self.path[:k], placed[k])
            self.closed = False
        return bool(placed)

    def finish(self) -> bool:
        """Close the path. LangGraph also calls this when only Sends are left; the next entry opens it again."""
        if not self.path or self.closed:
            return False
        self.closed = True
        return True


def is_new_request(
    value: PathValue | None, stage: str, template: Template | None, request_id: str | None, *, is_same_run: bool = False
) -> bool:
    """Whether the invocation of ``stage`` is the first of a request, rather than the next on the stored path.

    A path of another ``request_id`` is left. Otherwise the template decides: its root stage starts anew where it cannot follow
    the path, and on a closed path unless the request is known to be the same: by its id, or because the run that wrote the path
    still goes on (LangGraph closes channels in the middle of a run where only Sends are left). Every other stage continues.
    Without a template a closed path is left.
    """
    if value is None or not value["path"]:
        return True
    written_by = value["path"][-1].get("request")
    if request_id is not None and written_by is not None and written_by != request_id:
        return True
    ended = value["closed"] and not is_same_run and (request_id is None or written_by != request_id)
    if template is None:
        return ended
    if stage != template.invocations[0].name:
        return False
    follower = template.stage_after(len(value["path"]))
    return ended or follower is None or follower.name != stage


def models_of(value: PathValue | None) -> tuple[str, ...]:
    """The models of the stored path, in order."""
    return () if value is None else tuple(entry["model"] for entry in value["path"])


def channel_of(config: RunnableConfig) -> PathChannel | None:
    """The path channel of the run that a node's or an edge's config belongs to, as the last superstep left it.

    None where there is none, or where this LangGraph hides it: its reader's arguments are internal.
    """
    for given in getattr(config.get("configurable", {}).get("__pregel_read"), "args", ()):
        if type(given) is dict:
            channel = given.get(PATH_KEY)
            if isinstance(channel, PathChannel):
                return channel
    return None


def opening_of(config: RunnableConfig) -> ChannelSession | None:
    """The opening of that run."""
    channel = channel_of(config)
    return None if channel is None else channel.opening
