"""Base classes of policies, which choose models and record invocations, and rows made from the recorded invocations."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Any, Literal, SupportsFloat

from vinelm.clock import Clock, WallClock
from vinelm.one_process import OneProcess
from vinelm.plans.assignment import ALL, Assigned
from vinelm.requests.protocols import CallGuard, Invocation
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Observation, Usage
from vinelm.signals import Outcome
from vinelm.template import Template
from vinelm.tools.speculation import Speculation, ToolCandidate

Judge = Callable[[Any], bool]
"""Returns whether the answer in a workflow's state is right by the ground truth."""
OnError = Literal["default", "raise"]
"""What follows a failure of VineLM itself: the stage's default model and the workflow's own verdict, or the exception."""


class Policy(OneProcess, ABC):
    """Chooses the model of every invocation of one request, and records the invocations.

    The prefix, the models of the request's invocations so far, always comes from the adapter, which reads it from the
    workflow's state. A policy must not count calls itself, because LangGraph may retry, replay or resume a stage. All
    methods may be called from several threads. ``tests/kit/contracts/policies.py`` tests what every policy must do.

    Attributes:
        invocations: the recorded invocations in order, including retries and failures, which cost money, too.
        spent_usd: dollars of the recorded invocations.
        started_at: the request's arrival in seconds of ``clock``.
        guard: authorizes each call; None if no limit applies.
        on_error: what to do if the policy itself fails while a graph runs.
        falls_back: whether :meth:`fallback_model` may return a model.
        keeps_account: whether the calls under ``guard`` are written to the request's account next to the graph's
            checkpoints, so that the cap holds for all runs of the request; :meth:`paid` receives the account's sum.
        on_gate: called as ``on_gate(path, waits)`` when the invocation at the end of ``path`` begins to wait for rate
            limits, and again when the call is sent; None reports nothing.
        has_judge: whether a judge, a function of the caller, decides when the request ends; its exceptions are passed
            on.
        standing: called as ``standing(stage, priority)`` with the request's priority; returns the call's priority. None
            uses the request's priority.
        locate: only for a policy that replays a recorded run; otherwise None. Takes the key of an invocation's place in
            the graph's run, and returns the invocation's path.
        answers_at: only for such a policy; otherwise None. Takes the superstep of a call and the number of an invocation, from
            0. Returns how many calls of this invocation were answered, if that decides whether it has another call; else 0.
        assigned: whether the request was assigned to a plan or to the current setup. Stored with the path. In a resumed
            run it is set, before :meth:`resumed`, to the assignment of the run that began the request.
        kind: the request type that the plan is made for; None if plans are the same for all types. Stored with the path.

    Args:
        template: the workflow's shape; None if it is not known.
        clock: time as the request sees it; by default the machine's clock.
        request: the labelled request; None in an ordinary served call.
        started_at: the request's arrival in seconds of ``clock``; by default now.
    """

    guard: CallGuard | None = None
    on_error: OnError = "raise"
    falls_back: bool = False
    keeps_account: bool = False
    on_gate: Callable[..., None] | None = None
    has_judge: bool = False
    locate: Callable[[Any], tuple[str, ...]] | None = None
    answers_at: Callable[[str, int], int] | None = None
    standing: Callable[[str, float], SupportsFloat] | None = None
    assigned: Assigned = ALL
    kind: str | None = None

    def __init__(
        self,
        template: Template | None = None,
        *,
        clock: Clock | None = None,
        request: Request | None = None,
        started_at: float | None = None,
    ) -> None:
        self.template = template
        self.clock: Clock = WallClock() if clock is None else clock
        self.request = request
        self.started_at = self.clock.now() if started_at is None else started_at
        self.invocations: list[Invocation] = []
        self.spent_usd = 0.0
        self._lock = Lock()

    @abstractmethod
    def next_model(self, stage: str, prefix: tuple[str, ...]) -> str:
        """Return the model for the invocation of ``stage`` that follows ``prefix``."""

    @abstractmethod
    def should_continue(self, prefix: tuple[str, ...], finished: bool, state: Any, arms: Collection[str] | None = None) -> bool:
        """Return whether the request continues after ``prefix``.

        Args:
            prefix: models of the invocations so far.
            finished: the verdict of the workflow's own check.
            state: the application's state.
            arms: the stages that may come next; None if they are not known.
        """

    def record(self, invocation: Invocation) -> None:
        """Record an invocation that has succeeded or failed."""
        with self._lock:
            self._add(invocation)

    def observed(self, prefix: tuple[str, ...], outcome: Outcome) -> None:
        """Take note of the outcome of the last invocation of ``prefix``; this class ignores it.

        Called once for each invocation, in order, before :meth:`should_continue` for that prefix and before the next
        model is chosen; never if the workflow declares no signals. After :meth:`resumed`, the earlier run's invocations
        are reported again. A failed attempt is reported when it fails; if the invocation is tried again with the same
        model, the new outcome replaces the failed one.
        """

    def returned(self, prefix: tuple[str, ...]) -> int | None:
        """Choose the answer that a request returns when it ends after ``prefix``; None means the last answer.

        The result is the number of the answer's class; equal answers form a class. Called only by the node ``vine.finish``.
        """
        return None

    def note_returned(self, prefix: tuple[str, ...], note: str) -> None:
        """Take note of the answer returned after ``prefix``, described by the line ``note``; this class ignores it."""

    def begin(self, kind: str | None, note: str = "") -> None:
        """Take note of the request's type before its first model is chosen; this class ignores it.

        Called if the application declares a type. If the type could not be found, ``kind`` is None and ``note`` gives
        the reason. In a resumed request, called again if the first run had found another type; ``kind`` is then that type.
        """

    def resumed(self, prefix: tuple[str, ...], costs_usd: Sequence[float | None], stages: Sequence[str] = ()) -> None:
        """Record that the request continues after ``prefix``, which another run has executed, perhaps in another
        process.

        ``costs_usd`` holds the dollars recorded for each invocation of ``prefix``; None if unknown. ``stages`` are the
        stages of ``prefix``; empty if the template determines them.
        """

    def paid(self, total_usd: float) -> None:
        """Record the amount that earlier runs of the request have paid, unfinished calls included. Called before this
        run makes a call.
        """

    def interrupted(self, prefix: tuple[str, ...]) -> None:
        """Record that the last invocation of ``prefix`` was interrupted without a result; it will run again."""

    def note_unexpected(self, stage: str, prefix: tuple[str, ...], model: str, stages: tuple[str, ...]) -> None:
        """Record that the template does not allow ``stage`` after ``stages``, the stages of ``prefix``; ``model`` runs
        nevertheless.
        """

    def fallback_model(self, failed: Invocation, tried: Collection[str]) -> str | None:
        """Return another model for an invocation after a failed call; if the result is None, the failure is raised.

        Args:
            failed: the attempt as it will be recorded if a model is returned; not recorded yet.
            tried: the models that have failed in this invocation, including the model of ``failed``.
        """
        return None

    def comes_next(self, prefix: tuple[str, ...], stages: Collection[str]) -> float | None:
        """Return the probability that one of ``stages`` comes right after ``prefix``; None means unknown. This class
        returns None.

        Args:
            prefix: models of the invocations so far; the last one may still be running.
            stages: names of stages.
        """
        return None

    def speculated(
        self,
        stage: str,
        prefix: tuple[str, ...],
        candidates: Sequence[ToolCandidate],
        settings: Speculation,
        *,
        wasted_usd: float = 0.0,
        running: int = 0,
    ) -> Sequence[ToolCandidate]:
        """Return the tool calls to prefetch while ``stage`` runs, in order. This class returns all candidates that are
        likely enough.

        Args:
            stage: name of the stage.
            prefix: models of the invocations so far, including the current one.
            candidates: predicted calls of read-only tools that may come before the next call of a tool that writes.
            settings: the request's settings. The caller enforces their limits on dollars and on parallel calls, and the
                request's cap.
            wasted_usd: expected dollars wasted by the calls started so far.
            running: number of prefetched calls in progress.
        """
        likely = [one for one in candidates if one.probability >= settings.least_probability]
        return sorted(likely, key=lambda one: -one.probability)

    def note_failure(
        self, what: str, error: BaseException, prefix: tuple[str, ...], stage: str | None, model: str | None
    ) -> None:
        """Take note that ``what``, a part of VineLM, failed with ``error``; this class ignores it.

        The failure happened at ``stage`` after ``prefix``. ``model`` ran nevertheless; None if no model ran.
        """

    def trace(self) -> list[dict[str, Any]]:
        """Return an empty list. Subclasses return one item for each step that explains their choices."""
        return []

    def last_step(self) -> Mapping[str, Any]:
        """Return the last item of :meth:`trace`, or an empty mapping."""
        trace = self.trace()
        return trace[-1] if trace else {}

    def _add(self, invocation: Invocation) -> None:
        """Record the invocation and add its cost; called with the lock held."""
        self.invocations.append(invocation)
        self.spent_usd += invocation.cost_usd


class StopRulePolicy(Policy):
    """Base class of policies that serve requests: it applies the template's stop rule.

    Args:
        template: the workflow's shape.
        judge: decides whether the request has ended if the template's stop rule is ``oracle`` (a right answer ends the
            request); unused if the rule is ``workflow``.
        clock, request, started_at: see :class:`Policy`.

    Raises:
        ConfigError: the template's stop rule is ``oracle`` and no judge is given.
    """

    template: Template

    def __init__(
        self,
        template: Template,
        *,
        clock: Clock | None = None,
        request: Request | None = None,
        judge: Judge | None = None,
        started_at: float | None = None,
    ) -> None:
        ends = template.rule.judge(judge)
        super().__init__(template, clock=clock, request=request, started_at=started_at)
        self._judge = ends
        self.has_judge = ends is not None

    def has_ended(self, finished: bool, state: Any) -> bool:
        """Return whether the request has ended, according to the judge or, without one, the workflow's check (``finished``)."""
        return finished if self._judge is None else bool(self._judge(state))

    def default_model(self, stage: str) -> str:
        """Return the stage's declared default model."""
        return self.template.stage(stage).default_model


def observed_row(
    attempts: Sequence[Invocation],
    *,
    request_id: str,
    prefix: tuple[str, ...],
    stage: str,
    span_s: float | None = None,
    **known: Any,
) -> Observation:
    """Return the observation of an invocation, which is the row to record.

    The row's cost includes retries, its latency does not; its field ``retries`` counts them.

    Args:
        attempts: the attempts with the same model, in order, failed ones included; may be empty.
        request_id: the request.
        prefix: the models of all invocations up to and including this one.
        stage: the stage of the invocation.
        span_s: for a stage that makes calls one after another, the seconds from the start of the first call to the end
            of the last; the stage's latency is then the sum of the calls' latencies, but at most ``span_s``. None means
            that all calls ran at the same time, so the stage's latency is that of the longest call.
        **known: further fields of :class:`~vinelm.rows.observation.Observation`, including ``success`` and ``stopped``.
    """
    good = [one for one in attempts if one.failure is None]
    counted = good or list(attempts[-1:])
    usages = [usage for one in attempts for usage in one.usages]
    is_listed = any(usage.list_usd is not None for usage in usages)
    is_batched = any(usage.list_usd is not None and not usage.is_equal for usage in usages)
    each_s = [_without_waiting(one) for one in counted]
    latency_s = max(each_s, default=0.0)
    if span_s is not None:
        latency_s = max(latency_s, min(math.fsum(each_s), span_s))
    return Observation(
        request_id=request_id,
        prefix=prefix,
        stage=stage,
        cost_usd=sum(usage.cost_usd for usage in usages),
        latency_s=math.nan if is_batched else latency_s,
        tokens_in=known_total([usage.tokens_in for usage in usages]),
        tokens_out=known_total([usage.tokens_out for usage in usages]),
        tokens_cached=known_total([usage.tokens_cached for usage in usages]),
        tokens_estimated=any(usage.tokens_estimated for usage in usages),
        ttft_s=usages[0].ttft_s if usages else None,
        calls=len(usages),
        retries=sum(usage.retries for usage in usages) + len(attempts) - len(counted),
        list_usd=sum(_list_usd(usage) for usage in usages) if is_listed else None,
        **known,
    )


def _list_usd(usage: Usage) -> float:
    return usage.cost_usd if usage.list_usd is None else usage.list_usd


def _without_waiting(invocation: Invocation) -> float:
    """Return the invocation's seconds minus the time that its calls waited because of rate limits, failed attempts and
    backoff.

    A call that used the answer of an equal call counts with that call's latency.
    """
    equal_s = math.fsum(usage.latency_s for usage in invocation.usages if usage.is_equal)
    return max(invocation.latency_s - math.fsum(usage.waited_s for usage in invocation.usages), 0.0) + equal_s


def known_total(counts: Sequence[int | None]) -> int | None:
    """Return the sum of token counts; None if a count is unknown (None), or if there are no counts."""
    known = [n for n in counts if n is not None]
    return sum(known) if known and len(known) == len(counts) else None
