"""Writes tool calls of runs to a store, without delaying requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vinelm.errors import ConfigError
from vinelm.tools.call import SessionPart
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.served.writer import StoreWriter
from vinelm.traces.store.store import ObservationStore
from vinelm.traces.tools.tool_calls import ToolCalls

WAITING = 2_000
"""The maximum number of parts of sessions that wait in memory; it is small because results may be large."""
RUNS = 10_000
"""The maximum number of runs whose start times are remembered. Calls of forgotten runs count from their session's end."""


class ToolWriter(StoreWriter[SessionPart, ObservationStore]):
    """Appends tool calls and user messages to their sessions, in a store of any workflow.

    Args:
        path: the store, created if it does not exist. Its folder must exist.
        identity: returns the identity for a new store; called at the first write.

    Raises:
        ConfigError: the folder does not exist.
        StoreError: the file is not a store.
    """

    what = "calls of tools"

    def __init__(self, path: Path, identity: Callable[[], StoreIdentity]) -> None:
        folder = path.absolute().parent
        if not folder.is_dir():
            raise ConfigError(f"tool_store={str(path)!r}: the folder {folder} does not exist: create it first")
        if path.exists() and path.stat().st_size:
            ObservationStore.open(path).close()  # a file that is not a store is refused now, not in a log
        self._identity = identity
        super().__init__(path, bound=WAITING)

    def _reset(self) -> None:
        self._begins: dict[str, float] = {}
        super()._reset()

    def opened(self) -> ObservationStore:
        """Open the store, of any workflow, and return it."""
        if self.path.exists():
            return ObservationStore.open(self.path)
        return ObservationStore.open_or_create(self.path, self._identity())

    def write(self, store: ObservationStore, items: list[SessionPart]) -> None:
        """Append the tool calls and messages among ``items`` to their sessions."""
        begins = dict(self._begins)  # if a write is rolled back, nothing of it is remembered
        ToolCalls(store).append(items, begins)
        self.written += len(items)
        self._begins = dict(list(begins.items())[-RUNS:])

    def named(self, item: SessionPart) -> str:
        """Return the name of the item's session."""
        return f"a call of the session {ascii(item.session)[:80]}"
