"""Policies that choose models without planning: default models, forced models, or one path chosen in advance."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from vinelm.clock import Clock
from vinelm.errors import ConfigError, WorkflowError
from vinelm.money.spend_guard import SpendGuard
from vinelm.policies.policy import Judge, OnError, Policy, StopRulePolicy
from vinelm.requests.protocols import CallGuard, Invocation
from vinelm.requests.workflow import Request
from vinelm.template import Template
from vinelm.template.bounds import exceeded_words


class DefaultPolicy(Policy):
    """Runs each stage on its default model, ``default(stage)``, until the workflow's check or the template ends the
    request.

    Args:
        default: returns the default model of a stage, given its name.
        fallbacks: returns the models, in order, that a stage may run on after a failure, given its name. None raises
            every failure.
        max_latency_s, max_cost_usd: once the request has taken this time or cost this amount, failures are raised; None
            means no limit.
        on_error: see :class:`Policy`.
        guard: authorizes each call if the request has a cap.
        clock, template, request, started_at: see :class:`Policy`.
    """

    keeps_account = True

    def __init__(
        self,
        default: Callable[[str], str],
        *,
        fallbacks: Callable[[str], Sequence[str]] | None = None,
        max_latency_s: float | None = None,
        max_cost_usd: float | None = None,
        on_error: OnError = "raise",
        guard: CallGuard | None = None,
        clock: Clock | None = None,
        template: Template | None = None,
        request: Request | None = None,
        started_at: float | None = None,
    ) -> None:
        super().__init__(template, clock=clock, request=request, started_at=started_at)
        self._default = default
        self._fallbacks = fallbacks
        self.falls_back = fallbacks is not None
        self._latest_s, self._cap_usd = max_latency_s, max_cost_usd
        self._inherited_usd = 0.0
        self.on_error = on_error
        self.guard = guard
        self._failures: list[dict[str, Any]] = []

    def next_model(self, stage: str, prefix: tuple[str, ...]) -> str:
        """Return the stage's default model."""
        return self._default(stage)

    def fallback_model(self, failed: Invocation, tried: Collection[str]) -> str | None:
        """Return the first of the stage's fallback models that was not tried yet. None if there is none, or if the
        limit on time or cost is reached.
        """
        latest_s, cap_usd = self._latest_s, self._cap_usd
        if latest_s is not None and self.clock.now() - self.started_at >= latest_s:
            return None
        if cap_usd is not None and self._inherited_usd + self.spent_usd + failed.cost_usd >= cap_usd:
            return None
        allowed = () if self._fallbacks is None else self._fallbacks(failed.stage)
        return next((model for model in allowed if model not in tried), None)

    def resumed(self, prefix: tuple[str, ...], costs_usd: Sequence[float | None], stages: Sequence[str] = ()) -> None:
        """Add the recorded cost of the calls in ``prefix``, made by another run of the request, to the request's cost.

        Costs that were not recorded are added by :meth:`paid`. The arguments are those of :meth:`Policy.resumed`.
        """
        self._inherit(math.fsum(usd for usd in costs_usd if usd is not None))

    def paid(self, total_usd: float) -> None:
        """Raise the request's cost to ``total_usd``, the amount that earlier runs have paid. Called before this run
        makes a call.
        """
        self._inherit(total_usd - self.spent_usd - self._inherited_usd)

    def _inherit(self, usd: float) -> None:
        if usd > 0.0:
            self._inherited_usd += usd
            if isinstance(self.guard, SpendGuard):
                self.guard.add_inherited(usd)

    def _add(self, invocation: Invocation) -> None:
        super()._add(invocation)
        if isinstance(self.guard, SpendGuard):
            self.guard.note_recorded(self.spent_usd)
            prefix, model = invocation.prefix[:-1], invocation.prefix[-1]
            for line in self.guard.take_refusals():
                step = {"prefix": list(prefix), "stage": invocation.stage, "model": model, "note": f"call refused: {line}"}
                self._failures.append({"kind": "refused", **step})

    def should_continue(self, prefix: tuple[str, ...], finished: bool, state: Any, arms: Collection[str] | None = None) -> bool:
        """Return True if the workflow's check has not ended the request and the template, if known, allows another call."""
        return not finished and (self.template is None or len(prefix) < self.template.depth)

    def note_failure(
        self, what: str, error: BaseException, prefix: tuple[str, ...], stage: str | None, model: str | None
    ) -> None:
        """Record for :meth:`trace` that ``what``, a part of VineLM, failed with ``error``; see
        :meth:`Policy.note_failure`.
        """
        note = f"{what} failed ({type(error).__name__}): default model"
        self._failures.append({"kind": "failed", "prefix": list(prefix), "stage": stage, "model": model, "note": note})

    def note_unexpected(self, stage: str, prefix: tuple[str, ...], model: str, stages: tuple[str, ...]) -> None:
        """Record for :meth:`trace` that the template does not allow ``stage`` after ``stages``; ``model`` runs nevertheless."""
        after = f"after {' > '.join(stages)}" if stages else "at the start"
        exceeded = exceeded_words(self.template, stages, stage)
        note = f"unexpected arm: the template has no {stage!r} {after}, so add it there: default model"
        if exceeded is not None:
            note = f"{after} {exceeded}: default model"
        self._failures.append({"kind": "failed", "prefix": list(prefix), "stage": stage, "model": model, "note": note})

    def trace(self) -> list[dict[str, Any]]:
        """Return one dict of plain JSON types for each failure, refused call or unexpected stage."""
        return list(self._failures)

    def explain(self) -> str:
        """Return one line of text per finished invocation, failure or unexpected stage."""
        with self._lock:
            ended = tuple(self.invocations)
        lines = [
            f"[{_place(one.prefix[:-1])}] {one.stage}: {one.prefix[-1]} (${one.cost_usd:.4g}) - not planned" for one in ended
        ]
        lines += [f"[{_place(one['prefix'])}] {one['stage'] or 'end'}: {one['note']}" for one in self._failures]
        return "\n".join(lines)

    @property
    def decisions(self) -> list[Any]:
        """Return an empty list: this policy makes no plans."""
        return []

    def elapsed_s(self) -> float:
        """Return the seconds since the request's arrival."""
        return max(self.clock.now() - self.started_at, 0.0)


def _place(prefix: Sequence[str]) -> str:
    return "/".join(prefix) or "start"


ForcedMode = Literal["stop", "through"]


class ForcedPolicy(Policy):
    """Runs each invocation on a given model.

    Attributes:
        verdicts: the result of the workflow's check (True: finished), keyed by the number of calls before it.

    Args:
        template: the workflow's shape.
        models: the models of the calls, in order; or a mapping from the call's number, counted from 0, to a model.
        mode: ``"stop"`` ends the request when the workflow's check ends it; ``"through"`` ignores the check and ends after the
            template's last call.
        clock, request: see :class:`Policy`.
    """

    template: Template

    def __init__(
        self,
        template: Template,
        models: Mapping[int, str] | Sequence[str],
        *,
        mode: ForcedMode = "stop",
        clock: Clock | None = None,
        request: Request | None = None,
    ) -> None:
        if mode not in ("stop", "through"):
            raise ValueError(f"mode is {mode!r}: use 'stop' or 'through'")
        super().__init__(template, clock=clock, request=request)
        self.models = dict(models) if isinstance(models, Mapping) else dict(enumerate(models))
        self.mode = mode
        self.verdicts: dict[int, bool] = {}

    def next_model(self, stage: str, prefix: tuple[str, ...]) -> str:
        """Return the model given for invocation ``len(prefix)``.

        Raises:
            WorkflowError: no model is given for this invocation.
        """
        try:
            return self.models[len(prefix)]
        except KeyError:
            given = ", ".join(str(k) for k in sorted(self.models)) or "none"
            raise WorkflowError(
                f"stage {stage!r} runs as invocation {len(prefix)}, for which no model is forced (given: {given}): "
                "does the graph follow its template?"
            ) from None

    def should_continue(self, prefix: tuple[str, ...], finished: bool, state: Any, arms: Collection[str] | None = None) -> bool:
        """Return whether the request continues: in mode "stop" until the workflow's check ends it, in mode "through"
        until the template's last invocation.

        Also records the check's result in :attr:`verdicts`.
        """
        self.verdicts[len(prefix)] = finished
        return len(prefix) < self.template.depth if self.mode == "through" else not finished


class StaticPolicy(StopRulePolicy):
    """Follows one path of models chosen in advance, and ends after its last model. A stage beyond the path runs its
    declared default model.

    If the template branches, a path does not determine the stages; then ``models`` gives each stage its model.

    Args:
        template: the workflow's shape.
        path: models of the invocations in order, at least one; empty with ``models``.
        models: the model of each stage, by the stage's name; None with ``path``.
        length: with ``models``, end after this many invocations.
        clock, request, judge, started_at: see :class:`StopRulePolicy`.
    """

    def __init__(
        self,
        template: Template,
        path: Sequence[str] = (),
        *,
        models: Mapping[str, str] | None = None,
        length: int | None = None,
        clock: Clock | None = None,
        request: Request | None = None,
        judge: Judge | None = None,
        started_at: float | None = None,
    ) -> None:
        super().__init__(template, clock=clock, request=request, judge=judge, started_at=started_at)
        self.path = tuple(path)
        self.models = dict(models or {})
        if not self.path and not self.models:
            raise ConfigError("a static plan needs at least one model: name the models of its invocations in order")
        if self.path and (self.models or length is not None):
            raise ConfigError("a static plan is a path or a model for each stage: give one of them")
        for stage in self.models:
            template.stage(stage)  # raises for a stage that the template lacks
        self.length = template.depth if length is None else length

    def next_model(self, stage: str, prefix: tuple[str, ...]) -> str:
        """Return the plan's model for this invocation, or the stage's default model where the plan names none."""
        if self.models:
            return self.models.get(stage) or self.default_model(stage)
        return self.path[len(prefix)] if len(prefix) < len(self.path) else self.default_model(stage)

    def should_continue(self, prefix: tuple[str, ...], finished: bool, state: Any, arms: Collection[str] | None = None) -> bool:
        """Return whether to continue: the stop rule has not ended the request, and the plan has further calls."""
        length = self.length if self.models else len(self.path)
        return not self.has_ended(finished, state) and len(prefix) < length

    def trace(self) -> list[dict[str, Any]]:
        """Return a list with one item, the plan that is followed, as plain JSON types."""
        return [{"kind": "static", "plan": dict(self.models) if self.models else list(self.path)}]
