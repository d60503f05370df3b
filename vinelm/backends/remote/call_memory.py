"""Parts that a provider wants back with its tool calls and LangChain's cannot carry: thinking blocks, signatures."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

KEPT = 10_000

V = TypeVar("V")


class CallMemory(Generic[V]):
    """A value for each of the last :data:`KEPT` tool calls of this process, by model and call id. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], V] = OrderedDict()

    def put(self, model_id: str, call_id: str, value: V) -> None:
        """Store the value of a call."""
        with self._lock:
            self._known[model_id, call_id] = value
            if len(self._known) > KEPT:
                self._known.popitem(last=False)

    def get(self, model_id: str, call_id: str, unseen: V) -> V:
        """Return the value of a call; ``unseen`` if this process did not see this model make it."""
        with self._lock:
            return self._known.get((model_id, call_id), unseen)
