"""Reads and writes VineLM's own rows next to a thread's checkpoints, through the checkpointer's public methods."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint

CHANNEL = "vinelm_paid"
"""Name of the channel under which a row's values are stored."""
_PLACES = frozenset(("thread_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map"))
_PAUSES_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""Pauses in seconds between attempts to read a checkpoint, since LangGraph usually saves it while the next superstep runs."""
_MORE_PAUSES_S = (0.2, 0.4, 0.8)
"""Further pauses for a slow checkpointer, since the request would otherwise count as part of the thread's last one. They are
left out if an event loop would block.
"""
_MOST_STEPS = 1000


class SaverRow(NamedTuple):
    """The place in a checkpointer where VineLM stores its own values: a checkpoint id in a namespace that no graph uses.

    The checkpoint with this id has no channels. The values are stored as its pending writes.
    """

    namespace: str
    id: str


@dataclass(frozen=True, slots=True)
class Lineage:
    """A checkpoint and its ancestors, back to the checkpoint at which the request's input was saved.

    Attributes:
        ids: ids of the checkpoints, the newest first.
        birth: id of the input's checkpoint; None if a checkpoint is missing, or if it was not looked up.
    """

    ids: tuple[str, ...]
    birth: str | None


class SaverRows:
    """Appends values to the rows (:class:`SaverRow`) that a thread has in a checkpointer, and reads them.

    Appended values never change, so writers may append in any order.
    All methods are coroutines. With ``is_async=False`` they call the checkpointer's synchronous methods and never wait.

    Args:
        saver: the checkpointer.
        configurable: the run's ``config["configurable"]``: the thread, and what else the checkpointer needs.
    """

    __slots__ = ("_given", "_saver", "_thread")

    def __init__(self, saver: BaseCheckpointSaver[Any], configurable: Mapping[str, Any]) -> None:
        self._saver = saver
        self._thread = configurable["thread_id"]
        self._given = {key: one for key, one in configurable.items() if not key.startswith("__") and key not in _PLACES}

    async def read(self, row: SaverRow, *, is_async: bool) -> list[Mapping[str, Any]] | None:
        """Return the values stored in a row, in no particular order; None if the row has not been created."""
        found = await self._get(row.namespace, row.id, is_async=is_async)
        return None if found is None else _values(found)

    async def latest(self, namespace: str, *, is_async: bool) -> tuple[SaverRow, list[Mapping[str, Any]]] | None:
        """Return the row with the greatest id in the namespace, and its values; None if the namespace has no rows."""
        found = await self._get(namespace, None, is_async=is_async)
        return None if found is None else (SaverRow(namespace, found.checkpoint["id"]), _values(found))

    async def create(self, row: SaverRow, *, is_async: bool) -> None:
        """Create the row unless it exists; existing values stay."""
        config = self._config(row.namespace, None)
        checkpoint = {**empty_checkpoint(), "id": row.id}
        metadata = {"source": "update", "step": 0, "parents": {}}
        await self._call("put", config, checkpoint, metadata, {}, is_async=is_async)

    async def append(self, row: SaverRow, value: Mapping[str, Any], *, is_async: bool) -> None:
        """Append a value to an existing row; on return the checkpointer has saved it."""
        config = self._config(row.namespace, row.id)
        # Use a unique task id: a saver keeps one write for each task and place in it.
        await self._call("put_writes", config, [(CHANNEL, dict(value))], uuid4().hex, is_async=is_async)

    async def lineage(self, checkpoint_id: str | None, until: Collection[str] = (), *, is_async: bool, waits: bool) -> Lineage:
        """Return a checkpoint of the root graph and its ancestors, newest first.

        They end with the first checkpoint that is in ``until``, or with that of the request's input.

        Args:
            checkpoint_id: the id of the checkpoint; None gives an empty lineage.
            until: ids of checkpoints at which the search ends.
            is_async: whether the checkpointer's asynchronous methods are used.
            waits: whether to wait briefly if the checkpoint is not saved yet.
        """
        ids: list[str] = []
        pauses_s = _PAUSES_S if not is_async and _is_on_loop() else _PAUSES_S + _MORE_PAUSES_S
        at = checkpoint_id
        while at is not None and len(ids) < _MOST_STEPS:
            found = await self._get("", at, is_async=is_async)
            for pause_s in pauses_s if waits and not ids else ():
                if found is not None:
                    break
                await _pause(pause_s, is_async=is_async)
                found = await self._get("", at, is_async=is_async)
            if found is None:
                break
            ids.append(at)
            if at in until:
                break
            parent = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")
            if parent is None or found.metadata.get("source") == "input":
                return Lineage(tuple(ids), at)
            at = parent
        return Lineage(tuple(ids), None)

    async def _get(self, namespace: str, row_id: str | None, *, is_async: bool) -> CheckpointTuple | None:
        found: CheckpointTuple | None = await self._call("get_tuple", self._config(namespace, row_id), is_async=is_async)
        return found

    async def _call(self, method: str, *arguments: Any, is_async: bool) -> Any:
        if is_async:
            return await getattr(self._saver, f"a{method}")(*arguments)
        if getattr(self._saver, "loop", None) is not None and _is_on_loop():  # a call would wait for the loop that waits for it
            raise asyncio.InvalidStateError(f"{type(self._saver).__name__} cannot be called by code that blocks its event loop")
        return getattr(self._saver, method)(*arguments)

    def _config(self, namespace: str, row_id: str | None) -> dict[str, Any]:
        named = {"thread_id": self._thread, "checkpoint_ns": namespace}
        return {"configurable": {**self._given, **named, **({} if row_id is None else {"checkpoint_id": row_id})}}


async def _pause(seconds: float, *, is_async: bool) -> None:
    if is_async:
        await asyncio.sleep(seconds)
    else:
        time.sleep(seconds)


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _values(found: CheckpointTuple) -> list[Mapping[str, Any]]:
    writes: Sequence[tuple[str, str, Any]] = found.pending_writes or ()
    return [value for _, channel, value in writes if channel == CHANNEL and isinstance(value, Mapping)]
