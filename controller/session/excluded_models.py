"""Models that a request must not run next, because their call was refused, failed, or exceeds the remaining money."""

from __future__ import annotations

from collections.abc import Callable

from vinelm.controller.planner import Planner
from vinelm.errors import FailureKind
from vinelm.requests.protocols import Invocation

OF_THE_ENGINE = frozenset[FailureKind | None](("auth", "rate_limit", "timeout", "server"))
"""Kinds of failure that other models of the same engine may share."""
OF_THE_MODEL = frozenset[FailureKind | None](("context_length", "content_filter", "malformed", "truncated", "empty"))
"""Kinds of failure of one model only. The model causes no other kinds."""


class ExcludedModels:
    """Keeps the models that a request must not run next, separately for each prefix (the models that have run before).

    A failed model is used again if no other model fits; a refused or unaffordable model is never used.

    Args:
        planner: provides the trie and the engines.
        least_call_usd: returns the dollars reserved for even the smallest call of a model; None if money is not checked.
    """

    __slots__ = ("_failed", "_least_call_usd", "_planner", "_refused")

    def __init__(self, planner: Planner, least_call_usd: Callable[[str], float] | None) -> None:
        self._planner = planner
        self._least_call_usd = least_call_usd
        self._refused: dict[tuple[str, ...], set[str]] = {}
        self._failed: dict[tuple[str, ...], dict[str, FailureKind]] = {}

    def refuse(self, prefix: tuple[str, ...], model: str) -> None:
        """Exclude ``model`` after ``prefix``, because the request's cap did not allow its call."""
        self._refused.setdefault(prefix, set()).add(model)

    def fail(self, invocation: Invocation) -> None:
        """Exclude the failed call's model and, if the engine may be the cause, the engine's other models."""
        *before, model = invocation.prefix
        kind = invocation.failure
        if kind in OF_THE_ENGINE or kind in OF_THE_MODEL:
            assert kind is not None
            self._failed.setdefault(tuple(before), {})[model] = kind

    def failed(self, prefix: tuple[str, ...]) -> list[dict[str, FailureKind]]:
        """Return at most two sets of models to exclude because of failures after ``prefix``, in the order in which to try them.

        Each set is a dictionary from the model to its kind of failure. If an engine may be the cause, the first set has all
        models of this engine. The second set then has only the models that failed, in case there is no other engine. Empty
        without failures.
        """
        models = self._failed.get(prefix)
        if not models:
            return []
        engine_of = self._planner.engine_of
        down = {engine_of[model]: kind for model, kind in models.items() if kind in OF_THE_ENGINE and model in engine_of}
        engines = {model: down[engine] for model, engine in engine_of.items() if engine in down}
        return [engines | models, models] if engines.keys() - models.keys() else [models]

    def unaffordable(self, node: int, prefix: tuple[str, ...], left_usd: float) -> set[str]:
        """Return the models that cannot be called after ``prefix`` because of the request's cap.

        Their call was refused before, or would be refused with ``left_usd`` dollars left. ``node`` is the trie's node of the
        prefix.
        """
        refused = self._refused.get(prefix, set())
        if self._least_call_usd is None:
            return refused
        trie, least = self._planner.trie, self._least_call_usd
        following = (trie.models[int(trie.model[child])] for child in trie.children(node))
        return {model for model in following if model in refused or least(model) > left_usd}
