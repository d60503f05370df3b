"""What a request has spent, written beside its checkpoints at each call, so that whoever resumes it knows.

The path's channel carries dollars of finished invocations only: LangGraph drops what a stage wrote that is interrupted, fails,
is cancelled or dies. So each call of a request that has a cap of its own is noted before it is made, at its upper bound, and
again when its price is known, as a pending write of the checkpoint that its superstep began with. LangGraph keeps such writes
with the checkpoint and leaves those of unknown tasks alone. A note holds the total so far, so that the last one suffices.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from vinelm.adapters.langgraph.path_channel import PATH_KEY
from vinelm.errors import CallRefused
from vinelm.observation import Usage
from vinelm.policies import SpendGuard, aauthorized
from vinelm.protocols import CallGuard, CallPermit

CHANNEL = "__vinelm_spent__"
MOST_STEPS = 1_000
"""Checkpoints of a thread that are looked through for the last note, at most."""
_CHECKPOINTER, _MAP = "__pregel_checkpointer", "checkpoint_map"  # LangGraph's, in a task's config


class NotePlace(NamedTuple):
    """Where a superstep's notes are kept: the saver, and the checkpoint that the superstep began with."""

    saver: BaseCheckpointSaver[Any]
    config: RunnableConfig

    @classmethod
    def of(cls, config: RunnableConfig | None) -> NotePlace | None:
        """Return the place for a task of LangGraph; None where its graph keeps no checkpoints."""
        given: Mapping[str, Any] = (config or {}).get("configurable") or {}
        saver, thread = given.get(_CHECKPOINTER), given.get("thread_id")
        checkpoint = (given.get(_MAP) or {}).get("")
        if not isinstance(saver, BaseCheckpointSaver) or thread is None or checkpoint is None:
            return None
        where = {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": checkpoint}
        return cls(saver, {"configurable": where})


class SpendNotes:
    """The notes of one run of a graph. Thread-safe.

    Args:
        account: counts the dollars of the request.
        request_id: of the request, if the caller gave one: notes of earlier turns of it count, too.
        inherit: called with dollars that runs before this one have spent and that the path does not tell.
        on_failure: called as ``on_failure(what, error)`` where a note cannot be written or read; None: that is raised.
    """

    def __init__(
        self,
        account: SpendGuard,
        request_id: str | None,
        inherit: Callable[[float], None],
        on_failure: Callable[[str, BaseException], None] | None,
    ) -> None:
        self._account, self._request_id, self._inherit, self._on_failure = account, request_id, inherit, on_failure
        self._generation = self._sequence = 0
        self._is_read = False
        self._problem = ""
        self._place: NotePlace | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self._reader: asyncio.Future[None] | None = None
        self._lock = Lock()

    def begin(self, config: RunnableConfig | None) -> None:
        """An invocation begins in that task: notes are kept with the checkpoint of its superstep."""
        self._place = NotePlace.of(config)
        self.read()

    # -- what was spent before -----------------------------------------------------------------------------------

    def read(self) -> None:
        """Inherit what the last note says; once. In an event loop the first call does it, see :meth:`aread`."""
        place = self._place
        if self._is_read or place is None or _in_event_loop(place.saver):
            return
        with self._lock:
            if self._has_read():  # another branch of the fan-out, meanwhile
                return
            walk = self._walk(place.config)
            try:
                asked = next(walk)
                while True:
                    asked = walk.send(place.saver.get_tuple(asked))
            except StopIteration as done:
                self._take(done.value)
            except Exception as error:
                self._failed(error)
        if self._generation:
            self.write()  # so that the runs after this one need not look further back

    def _has_read(self) -> bool:
        return self._is_read

    async def aread(self) -> None:
        """The same for a coroutine; those that come meanwhile wait for the first."""
        if self._is_read or self._place is None:
            return
        if self._reader is None:
            self._reader = asyncio.ensure_future(self._aread(self._place))
        await asyncio.shield(self._reader)

    async def _aread(self, place: NotePlace) -> None:
        walk = self._walk(place.config)
        try:
            asked = next(walk)
            while True:
                asked = walk.send(await place.saver.aget_tuple(asked))
        except StopIteration as done:
            self._take(done.value)
        except Exception as error:
            self._failed(error)
        if self._generation:
            await self.awrite()

    def _walk(self, config: RunnableConfig) -> Generator[RunnableConfig, CheckpointTuple | None, dict[str, Any] | None]:
        """Ask for checkpoints from the last one back, to the last note of this request, or to where it began."""
        here: RunnableConfig | None = config
        is_earlier_turn = False  # whether the checkpoint is the last one of an earlier turn on the thread
        for _ in range(MOST_STEPS):
            if here is None:
                return None
            found = yield here
            if found is None:
                return None
            notes = [value for _, channel, value in found.pending_writes or () if channel == CHANNEL]
            mine = [note for note in notes if self._request_id is None or note.get("request") == self._request_id]
            if mine:
                last: dict[str, Any] = max(mine, key=lambda note: tuple(note["order"]))
                return last
            if is_earlier_turn and not self._is_in_path(found):
                return None
            is_earlier_turn = found.metadata.get("source") == "input"
            if is_earlier_turn and self._request_id is None:
                return None  # what comes before belongs to another request
            here = found.parent_config
        return None

    def _is_in_path(self, found: CheckpointTuple) -> bool:
        """Whether the path of a checkpoint is that of this request."""
        value = found.checkpoint["channel_values"].get(PATH_KEY) or {}
        return any(entry.get("request") == self._request_id for entry in value.get("path", ())[-1:])

    def _take(self, note: dict[str, Any] | None) -> None:
        self._is_read = True
        if note is None:
            return
        self._generation = int(note["order"][0]) + 1
        unknown_usd = float(note["usd"]) - self._account.used_usd()
        if unknown_usd > 0.0:
            self._inherit(unknown_usd)

    def _failed(self, error: Exception) -> None:
        if self._on_failure is None:
            raise error
        self._is_read = True
        self._problem = type(error).__name__
        self._on_failure("the notes of what was spent", error)

    # -- what is spent now ---------------------------------------------------------------------------------------

    def require_known(self) -> None:
        """Raise :class:`~vinelm.errors.CallRefused` where what was spent before could not be read: the cap wins."""
        if self._problem:
            raise CallRefused(
                "what this request has spent before cannot be read from the graph's checkpointer "
                f"({self._problem}): the call was not made"
            )

    def write(self) -> None:
        """Note the total so far."""
        place = self._place
        if place is None:
            return
        try:
            if _in_event_loop(place.saver):
                task = asyncio.get_running_loop().create_task(self._written(place, self._note()))
                self._writing.add(task)  # the loop itself holds tasks weakly
                task.add_done_callback(self._writing.discard)
            else:
                place.saver.put_writes(place.config, [(CHANNEL, self._note())], _task())
        except Exception as error:
            self._not_written(error)

    async def awrite(self) -> None:
        """The same for a coroutine."""
        if self._place is not None:
            await self._written(self._place, self._note())

    async def _written(self, place: NotePlace, note: dict[str, Any]) -> None:
        try:
            await place.saver.aput_writes(place.config, [(CHANNEL, note)], _task())
        except Exception as error:
            self._not_written(error)

    def _note(self) -> dict[str, Any]:
        with self._lock:
            self._sequence += 1
            note = {"order": [self._generation, self._sequence], "usd": self._account.used_usd()}
        return note if self._request_id is None else {**note, "request": self._request_id}

    def _not_written(self, error: Exception) -> None:
        if self._on_failure is None:
            raise error
        self._on_failure("a note of what was spent", error)


class NotedGuard:
    """Authorizes what another guard does, and notes it; a :class:`~vinelm.protocols.CallGuard`."""

    __slots__ = ("_guard", "_notes")

    def __init__(self, guard: CallGuard, notes: SpendNotes) -> None:
        self._guard, self._notes = guard, notes

    def authorize(self, upper_usd: float) -> NotedPermit:
        """Reserve money for a call that costs at most ``upper_usd`` dollars, and note it."""
        self._notes.read()
        self._notes.require_known()
        permit = self._guard.authorize(upper_usd)
        self._notes.write()
        return NotedPermit(permit, self._notes)

    async def aauthorize(self, upper_usd: float) -> NotedPermit:
        """Like :meth:`authorize`, for a coroutine."""
        await self._notes.aread()
        self._notes.require_known()
        permit = await aauthorized(self._guard, upper_usd)
        try:
            await self._notes.awrite()
        except BaseException:  # cancelled: the call is not made
            permit.settle(Usage(model="", cost_usd=0.0, latency_s=0.0))
            raise
        return NotedPermit(permit, self._notes)


class NotedPermit:
    """A call that was authorized and noted; its price is noted, too."""

    __slots__ = ("_is_settled", "_notes", "_permit")

    def __init__(self, permit: CallPermit, notes: SpendNotes) -> None:
        self._permit, self._notes = permit, notes
        self._is_settled = False

    def settle(self, usage: Usage) -> None:
        """Replace the reservation by what the call really cost."""
        self._permit.settle(usage)
        self._note()

    def close(self) -> None:
        """Count the call at its upper bound unless it was settled."""
        self._permit.close()
        self._note()

    def _note(self) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._notes.write()

    def __enter__(self) -> NotedPermit:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _task() -> str:
    """A task that LangGraph does not know; each note has its own, since savers keep the first write of a task."""
    return f"vinelm-{uuid.uuid4().hex}"


def _in_event_loop(saver: BaseCheckpointSaver[Any]) -> bool:
    """Whether the saver may be asked by coroutines only: on the thread of an event loop, unless it is in memory."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return not hasattr(saver, "storage")
    return False


__all__ = ["NotedGuard", "SpendNotes"]
