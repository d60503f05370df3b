"""Claude's thinking blocks: within a loop of tool calls it requires them back, but LangChain's tool calls cannot carry them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

KEPT = 10_000


class ThinkingBlocks:
    """The thinking before the last :data:`KEPT` tool calls of this process, by model and call id. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], tuple[Mapping[str, Any], ...]] = OrderedDict()

    def put(self, model_id: str, call_id: str, blocks: Sequence[Mapping[str, Any]]) -> None:
        """Store the blocks of the answer that made this call, in their order; none if the model did not think."""
        with self._lock:
            self._known[model_id, call_id] = tuple(blocks)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)

    def get(self, model_id: str, call_id: str) -> tuple[Mapping[str, Any], ...] | None:
        """Return the blocks of a call; None if this process did not see this model make it."""
        with self._lock:
            return self._known.get((model_id, call_id))
