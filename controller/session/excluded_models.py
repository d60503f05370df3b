"""Which next models one request keeps away from: their call was refused or failed, or there is no money for it."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from vinelm.controller.planning.planner import Planner
from vinelm.errors import FailureKind
from vinelm.protocols import Invocation
from vinelm.trie import BoolArray

OF_THE_ENGINE = frozenset[FailureKind | None](("auth", "rate_limit", "timeout", "server"))
"""Failures that any model of the engine may share."""
OF_THE_MODEL = frozenset[FailureKind | None](("context_length", "content_filter", "malformed", "truncated", "empty"))
"""Failures that another model, even of the same engine, need not repeat. Other kinds are not the model's doing."""


class ExcludedModels:
    """By prefix. What was refused or is too dear must not be planned; what failed is left out while there is something else.

    ``least_call_usd``: dollars that are set aside for any call of a model, by name.
    """

    __slots__ = ("_failed", "_least_call_usd", "_planner", "_refused")

    def __init__(self, planner: Planner, least_call_usd: Callable[[str], float] | None) -> None:
        self._planner = planner
        self._least_call_usd = least_call_usd
        self._refused: dict[tuple[str, ...], set[str]] = {}
        self._failed: dict[tuple[str, ...], dict[str, FailureKind]] = {}

    @property
    def is_empty(self) -> bool:
        """Nothing is barred, and nothing can be too dear."""
        return not self._failed and not self._refused and self._least_call_usd is None

    def refuse(self, prefix: tuple[str, ...], model: str) -> None:
        """The request's cap did not allow a call of ``model`` after ``prefix``."""
        self._refused.setdefault(prefix, set()).add(model)

    def fail(self, invocation: Invocation) -> None:
        """The invocation failed; whose doing that was, its kind tells."""
        *before, model = invocation.prefix
        kind, engine_of = invocation.failure, self._planner.engine_of
        if kind is None or not (kind in OF_THE_ENGINE or kind in OF_THE_MODEL):
            return
        failed = self._failed.setdefault(tuple(before), {})
        failed[model] = kind
        if kind in OF_THE_ENGINE:
            failed.update({other: kind for other, engine in engine_of.items() if engine == engine_of.get(model)})

    def failed(self, prefix: tuple[str, ...]) -> dict[str, FailureKind]:
        """Model to the kind of failure that keeps it away from the place after ``prefix``."""
        return self._failed.get(prefix, {})

    def too_dear(self, node: int, prefix: tuple[str, ...], left_usd: float) -> set[str]:
        """Next models whose call was refused, or would be with ``left_usd`` left."""
        refused = self._refused.get(prefix, set())
        if self._least_call_usd is None:
            return refused
        trie, least = self._planner.trie, self._least_call_usd
        following = (trie.models[int(trie.model[child])] for child in trie.children(node))
        return {model for model in following if model in refused or least(model) > left_usd}

    def without(self, node: int, models: Collection[str], candidates: BoolArray | None) -> BoolArray | None:
        """``candidates`` less all behind a next model among ``models``; shape (n + 1,), None for every node."""
        trie, left = self._planner.trie, None
        for child in trie.children(node) if models else ():
            if trie.models[int(trie.model[child])] in models:
                if left is None:
                    left = np.ones(len(trie), np.bool_) if candidates is None else candidates.copy()
                left[child : int(trie.end[child])] = False
        return candidates if left is None else left
