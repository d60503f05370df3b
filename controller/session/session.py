"""The policy of one request: makes a new plan before every call, with the time and money actually spent so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from vinelm.clock import Clock
from vinelm.controller.load.load_view import LoadSource, SessionLoad
from vinelm.controller.planner import Planner
from vinelm.controller.planning.decision import Decision
from vinelm.controller.session.call_follower import CallFollower, RequestFollower, RequestWatcher
from vinelm.controller.session.reads_ahead import chance_of_next, reads_of_a_step
from vinelm.controller.session.replanner import Replanner
from vinelm.controller.session.request_rows import RequestRows
from vinelm.controller.session.trace import TraceStep
from vinelm.errors import ConfigError, InfeasibleError
from vinelm.money.spend_guard import SpendGuard
from vinelm.objective import Objective
from vinelm.plans.assignment import ALL, Assigned
from vinelm.policies import Judge, OnError, StopRulePolicy
from vinelm.requests.protocols import Invocation, LoadMonitor
from vinelm.requests.workflow import Request
from vinelm.signals import Outcome
from vinelm.template import Template
from vinelm.tools.speculation import Speculation, ToolCandidate
from vinelm.trie.cache_hits import seconds_if_asked

Mode = Literal["enforce", "observe", "off"]
_MODES, _ON_ERROR = get_args(Mode), get_args(OnError)
PLAN_HOLDS_S = 0.05
"""A loop's edge plans for the invocation that follows it. If that begins within this many seconds, and no other invocation has
ended meanwhile, the plan is used: the time in between is LangGraph's own step."""


class Session(StopRulePolicy):
    """A :class:`~vinelm.policies.Policy` that plans for one request (VineLM paper §4.3).

    Each plan starts from the given prefix, with the seconds since ``started_at`` and the recorded dollars. If the model for a
    prefix is asked for again (in a retry or a fan-out), the answer is the same, unless that model's call has failed meanwhile.
    A call of the prefix that another process made counts with the dollars that the process recorded. If it recorded none, the
    expected dollars count. If the trie lacks a stage after a prefix, the stage runs its declared default model, and
    :meth:`trace` gives the reason.

    With ``cost_budget="per_request"`` and ``mode="enforce"``, :attr:`guard` authorizes every call. A call that could exceed
    the cap raises :class:`~vinelm.errors.CallRefused` and appears in :meth:`trace`. If its stage runs again, the stage
    gets another model.

    Thread-safe. The lock rule: everything that changes after construction is read and written with ``_lock`` held. Public
    methods take the lock; methods with a leading underscore expect it to be held. Planning, which reads clock and load,
    runs with the lock held; the judge and a load monitor's ``dispatched`` and ``finished`` are called without it. The guard
    has a separate lock, which is taken after ``_lock`` and never before it.

    Args:
        planner: plans over the trie; shared by all sessions.
        objective: target and bounds of the request.
        clock: the request's clock; by default the machine's.
        request: the labelled request; None in an ordinary served call.
        judge: decides whether the answer is right, if the template ends requests at a right answer (``stop="oracle"``).
        started_at: the request's arrival in seconds of ``clock``; by default now.
        mode: ``"enforce"`` follows the plan, ``"observe"`` plans and changes nothing, ``"off"`` does not plan.
        on_error: ``"default"`` runs the default model after a failure of VineLM itself, and plans with ``risk="mean+sd"`` if
            the trie is too large for ``risk="dp"``; ``"raise"`` raises. With ``on_infeasible="raise"``, an infeasible
            objective raises an error in the first plan of the request, and in later plans if the request follows its plans.
        fallback: whether another model may answer after a failed call, in mode "enforce"; see :meth:`fallback_model`.
        load: the source of the engines' present load, which is read before each plan and must not block. A
            :class:`~vinelm.requests.protocols.LoadMonitor` is also notified of this request's calls.
        least_call_usd: returns the dollars that are reserved for the smallest possible call of a model. Under a per-request
            cap, plans do not use models for which this exceeds the remaining dollars.
        default: returns a stage's default model; by default the model that the template declares.
        template: the workflow's stages and their order; by default the template of the trie.
        on_spent: called with the cost in dollars of each recorded call, while the lock is held.
        rows: an object that is notified when a call begins, waits or ends, such as the fleet's record of live calls; None
            without one.
        evidence: stores the results of the request's calls, one row per call, as a profile does; None stores nothing.
        assigned: tells whether the request was assigned to the plan. Otherwise the request runs the default models even in mode
            "enforce", with caps and fallbacks.
        follower: an object that is notified of all events of the request; None without one.
    """

    guard: SpendGuard | None
    keeps_account = True

    def __init__(
        self,
        planner: Planner,
        objective: Objective,
        *,
        clock: Clock | None = None,
        request: Request | None = None,
        judge: Judge | None = None,
        started_at: float | None = None,
        mode: Mode = "enforce",
        on_error: OnError = "default",
        fallback: bool = False,
        load: LoadSource | LoadMonitor | None = None,
        least_call_usd: Callable[[str], float] | None = None,
        default: Callable[[str], str] | None = None,
        template: Template | None = None,
        on_spent: Callable[[float], None] | None = None,
        rows: RequestWatcher | None = None,
        evidence: RequestRows | None = None,
        assigned: Assigned = ALL,
        follower: RequestFollower | None = None,
    ) -> None:
        if mode not in _MODES:
            raise ConfigError(f"mode is {mode!r}: use 'enforce', 'observe' or 'off'")
        if on_error not in _ON_ERROR:
            raise ConfigError(f"on_error is {on_error!r}: use 'default' or 'raise'")
        self.steps: list[TraceStep] = []
        objective = self._plannable(objective, planner, on_error)
        super().__init__(
            template or planner.annotated.template.base,
            clock=clock,
            request=request,
            judge=judge,
            started_at=started_at,
        )
        self.planner = planner
        self.objective = objective
        self.mode: Mode = mode
        self.assigned, self._follower = assigned, follower
        self.follows = mode == "enforce" and assigned.is_plan
        self.on_error: OnError = on_error
        self.falls_back = fallback and mode == "enforce"
        self._load = None if load is None else SessionLoad(load, planner)
        self._default, self._on_spent = default, on_spent
        self._rows, self.evidence = rows, evidence
        self._followers: list[CallFollower] = [one for one in (self._load, rows, evidence, follower) if one is not None]
        self.on_gate = None if rows is None else rows.gate
        self.standing = rows.standing if rows is not None and mode == "enforce" else None
        self._chosen: dict[tuple[str, ...], tuple[str, str]] = {}  # stage and model
        self._accounted: set[tuple[str, ...]] = {()}  # prefixes whose last invocation, with all before it, counts as spent
        self._inherited_usd = self._elapsed_s = 0.0
        self._expected_usd: dict[tuple[str, ...], float] = {}  # for prefixes that may still be recorded: parallel stages
        self._edge: TraceStep | None = None
        self._begun: tuple[str, str] | None = None  # the type that the request counts as, with a note
        self.guard = None
        if objective.cost_budget == "per_request" and objective.max_cost_usd is not None and mode == "enforce":
            self.guard = SpendGuard(objective.max_cost_usd)
        self._replanner = Replanner(
            planner,
            objective,
            load=self._load,
            least_call_usd=least_call_usd if self.guard is not None else None,
            raises=on_error == "raise",
            is_off=mode == "off",
            follows=self.follows,
        )
        self._draw()

    # -- the policy --------------------------------------------------------------------------------------------

    def begin(self, kind: str | None, note: str = "") -> None:
        """Set the request type for which later plans are made, if the trie has types; an unknown type counts as "other".

        This is called before the first :meth:`next_model`, and again if another process resumes the request. ``note`` gives
        the reason if the type is unknown.
        """
        with self._lock:
            counts_as = self.kind = self._replanner.begin(kind)
            if self.evidence is not None:
                self.evidence.kind = counts_as
            if counts_as is not None and (counts_as, note) != self._begun:
                self._begun = counts_as, note
                what = f"kind: {counts_as}" + (f" ({kind} is not learnt)" if kind not in (None, counts_as) else "")
                self.steps.append(TraceStep("begin", (), None, None, *self._used(), None, f"{what}; {note}" if note else what))

    def next_model(self, stage: str, prefix: tuple[str, ...]) -> str:
        """Return the model for the call of ``stage`` after ``prefix``."""
        with self._lock:
            decision: Decision | None = None
            asked, model = self._chosen.get(prefix, (stage, None))
            if model is None or asked != stage:
                model, decision = self._choose(stage, prefix)
                self._chosen[prefix] = (stage, model)
            elapsed_s = self._elapsed_s
        if self._followers:
            path = (*prefix, model)
            self._tell("began", path, lambda follower: follower.began(stage, path, elapsed_s, decision))
        return model

    def record(self, invocation: Invocation) -> None:
        """Record a finished call. If it failed, the next plan for its position avoids the failed model, if possible."""
        excess_s: float | None = None
        try:
            with self._lock:
                self._add(invocation)
                excess_s = None if self._load is None else self._excess_s(invocation)
        finally:  # whatever cannot be recorded is under way no longer
            self._tell("ended", invocation.prefix, lambda follower: follower.ended(invocation, excess_s))

    def resumed(self, prefix: tuple[str, ...], costs_usd: Sequence[float | None], stages: Sequence[str] = ()) -> None:
        """Count the dollars that another process spent on ``prefix``, or the expected dollars if that process recorded none.

        ``stages`` are the stages that ran; needed if the template branches.
        """
        with self._lock:
            for k, stage in enumerate(stages):
                self._replanner.note_stage(prefix[:k], stage)
            self._inherit(prefix, costs_usd)
            self._draw()
            if self._follower is not None:
                self._follower.resumed(self.assigned, costs_usd)

    def _draw(self) -> None:
        """Apply the request's assignment, which says whether the request follows the plan, and with which bound.

        Under a traffic split, one of two bounds is drawn for each request. The bound drawn when the request began stays valid,
        also after another process resumes the request.
        """
        self.follows = self._replanner.follows = self.mode == "enforce" and self.assigned.is_plan
        # If spend control or a new trie has moved the bound since the request began, the drawn bound still holds.
        bound = self.assigned.bound if self.objective.mixes else None
        own = () if bound is None else (self.objective.drawn(bound),)
        self._replanner.objectives = (*own, self.objective)

    def paid(self, total_usd: float) -> None:
        """Count the dollars that earlier runs of the request have paid in total, including those for unfinished calls.

        Called after :meth:`resumed` and before any call of this run. Dollars that :meth:`resumed` has counted are not counted
        again.
        """
        with self._lock:
            missing_usd = total_usd - self.spent_usd - self._inherited_usd
            if missing_usd > 0.0:
                self._inherited_usd += missing_usd
                self._edge = None
                if self.guard is not None:
                    self.guard.add_inherited(missing_usd)

    def interrupted(self, prefix: tuple[str, ...]) -> None:
        """Record that the call has no result, will run again, and is no longer in flight."""
        for follower in self._followers:
            try:  # without _tell, because this runs when _tell has failed
                follower.interrupted(prefix)
            except Exception as error:  # a follower may be of the fleet, the canary or the evidence
                self._note_untold(error, "interrupted", prefix)

    def should_continue(self, prefix: tuple[str, ...], finished: bool, state: Any, arms: Collection[str] | None = None) -> bool:
        """Return whether to continue after ``prefix``: False if the stop rule or the plan ends the request.

        Args:
            prefix: models of the calls so far.
            finished: whether the workflow's own check has passed the answer.
            state: the application's state, which the judge reads.
            arms: the stages of which one comes next, if the template branches; None if they are unknown.
        """
        has_ended = finished if self._judge is None else self.has_ended(finished, state)
        self._tell("verdict", prefix, lambda rows: rows.verdict(prefix, has_ended), (self.evidence,))
        goes_on = not has_ended
        if goes_on or (self._replanner.seen.goes_on and self.follows):
            with self._lock:
                self._replanner.note_verdict(prefix, finished)
                step = self._edge = self._end_step(prefix, arms)
                self.steps.append(step)
            goes_on = step.model is not None or (not self.follows and step.stage is not None)
            if has_ended and step.decision is None:
                goes_on = False
        if not goes_on:
            self._tell("left", prefix, lambda rows: rows.left(), (self.evidence,))
        if self._follower is not None:
            self._follower.edge(goes_on)
        return goes_on

    def observed(self, prefix: tuple[str, ...], outcome: Outcome) -> None:
        """Record the outcome of the last call of ``prefix``; later plans use the outcome if the trie has outcomes."""
        self._tell("showed", prefix, lambda rows: rows.shown(prefix, outcome.signal), (self.evidence,))
        with self._lock:
            self._replanner.note_outcome(prefix, outcome)

    def returned(self, prefix: tuple[str, ...]) -> int | None:
        """Return the number of the group of agreeing answers that is most probably right.

        The request's answer is taken from this group. None if the last answer is to be returned, or if no plan is followed.
        """
        if not self.follows:
            return None
        with self._lock:
            return self._replanner.returned(prefix)

    def fallback_model(self, failed: Invocation, tried: Collection[str]) -> str | None:
        """Return the next best model after a failed call, planned with the remaining time and money.

        Returns None, with the reason as a step of the trace, if the deadline has passed, the cap is reached or no model is
        left.

        Args:
            failed: the failed attempt, which is not recorded yet.
            tried: the models whose attempts at this call have failed, including the model of ``failed``.
        """
        if not self.falls_back:
            return None
        with self._lock:
            model = self._fallback(failed, tried)
            step, elapsed_s = self._last_answer(), self._elapsed_s
        if model is not None:
            path = (*failed.prefix[:-1], model)
            self._tell("began", path, lambda follower: follower.began(failed.stage, path, elapsed_s, step and step.decision))
        return model

    def comes_next(self, prefix: tuple[str, ...], stages: Collection[str]) -> float | None:
        """Return the trie's probability that one of these stages comes right after ``prefix``; 0 if the plan ends there."""
        with self._lock:
            return chance_of_next(self.steps, self._replanner, prefix, stages)

    def speculated(
        self, stage: str, prefix: tuple[str, ...], candidates: Sequence[ToolCandidate], settings: Speculation, **started: Any
    ) -> Sequence[ToolCandidate]:
        """Return the tool calls that are worth prefetching according to the plan.

        Without a plan, return all that are likely enough. ``started`` holds the figures of the prefetches started so far; see
        :meth:`vinelm.policies.Policy.speculated`.
        """
        with self._lock:
            found = reads_of_a_step(self.steps, self._replanner, prefix, candidates, settings, guard=self.guard, **started)
        return super().speculated(stage, prefix, candidates, settings, **started) if found is None else found

    def note_failure(
        self, what: str, error: BaseException, prefix: tuple[str, ...], stage: str | None, model: str | None
    ) -> None:
        """Record in the trace that ``what`` failed inside VineLM, and that ``model`` ran instead (None: no model ran)."""
        note = f"{what} failed ({type(error).__name__}): default model"
        self.steps.append(TraceStep("failed", prefix, stage, model, self._elapsed_s, self.spent_usd, None, note))

    def note_returned(self, prefix: tuple[str, ...], note: str) -> None:
        """Record in the trace which answer a request that ends after ``prefix`` returns, and why."""
        with self._lock:
            self.steps.append(TraceStep("end", prefix, None, None, *self._used(prefix), None, note))

    def trace(self) -> list[dict[str, Any]]:
        """Return every decision made, in order, as plain JSON types."""
        with self._lock:
            steps = tuple(self.steps)
        return [step.to_dict() for step in steps]

    def last_step(self) -> Mapping[str, Any]:
        """Return the last item of :meth:`trace` that is a decision; an empty mapping if there is none."""
        with self._lock:
            step = self._last_answer()
        return {} if step is None else step.to_dict()

    def _last_answer(self) -> TraceStep | None:
        return next((one for one in reversed(self.steps) if not one.is_aside), None)

    def explain(self) -> str:
        """Return as text every decision, what each alternative offers, and why each was not chosen."""
        with self._lock:
            steps = tuple(self.steps)
        return "\n\n".join(step.explain() for step in steps)

    @property
    def decisions(self) -> list[Decision]:
        """The plans that were made for the request, in order."""
        with self._lock:
            return [step.decision for step in self.steps if step.decision is not None]

    def default_model(self, stage: str) -> str:
        """Return the stage's default model, as declared by the session's creator."""
        return super().default_model(stage) if self._default is None else self._default(stage)

    def elapsed_s(self) -> float:
        """Return the seconds since the request's arrival; never decreases, even if the clock goes back."""
        with self._lock:
            return self._used()[0]

    def _plannable(self, objective: Objective, planner: Planner, on_error: OnError) -> Objective:
        """Return the objective, changed to ``risk="mean+sd"`` if the trie is too large for ``risk="dp"``."""
        why = planner.unplannable(objective)
        if why is None:
            return objective
        if on_error == "raise":
            raise ConfigError(why, code="dp-too-large")
        self.steps.append(TraceStep("failed", (), None, None, 0.0, 0.0, None, f"{why}: planned with mean+sd"))
        return replace(objective, risk="mean+sd", late_weight=None)

    # -- followers of the calls, without the lock: a failing one stops neither the others nor the request ------------

    def _tell(
        self,
        event: str,
        path: tuple[str, ...],
        tell: Callable[[Any], None],
        followers: Sequence[CallFollower | None] | None = None,
    ) -> None:
        """Call ``tell`` with each of the followers (None: with all), and note errors of these calls in the trace.

        ``event`` and ``path`` name the event and the call in such a note. If a follower fails to handle the event "ended", it
        is notified that the call was interrupted, so that it does not count the call as in flight.
        """
        for follower in self._followers if followers is None else followers:
            try:
                if follower is not None:
                    tell(follower)
            except Exception as error:  # a follower may be of the fleet, the canary or the evidence
                self._note_untold(error, event, path)
                if event == "ended":  # so that no call stays in flight
                    self._tell("interrupted", path, lambda follower: follower.interrupted(path), (follower,))

    def _note_untold(self, error: Exception, event: str, path: tuple[str, ...]) -> None:
        note = f"a follower failed ({type(error).__name__}): not told that the invocation {event}"
        self.steps.append(
            TraceStep("failed", path[:-1], None, None, self._elapsed_s, self.spent_usd, None, note, is_aside=True)
        )

    # -- one answer, with the lock held --------------------------------------------------------------------------

    def _choose(self, stage: str, prefix: tuple[str, ...]) -> tuple[str, Decision | None]:
        """Return the model for the call of ``stage`` after ``prefix``, and the plan made there; None without a plan."""
        elapsed_s, spent_usd = self._used(prefix)
        # The edge that led here has just planned for this position. Planning again would cost time and might disagree.
        edge, self._edge = self._edge, None
        decision: Decision | None
        if (
            edge is not None
            and edge.decision is not None
            and edge.decision.next_model is not None
            and (edge.stage, edge.prefix) == (stage, prefix)
            and elapsed_s - edge.elapsed_s <= PLAN_HOLDS_S
        ):
            decision, note = edge.decision, edge.note
        else:
            decision, note = self._replanner.plan(stage, prefix, elapsed_s=elapsed_s, spent_usd=spent_usd, may_stop=False)
        # Planned even if the plan is not followed (observed, unproven, not in the canary's share): the trace says what would
        # have run.
        planned = None if decision is None else decision.next_model
        model = planned if planned is not None and self.follows else self.default_model(stage)
        if not self.follows and planned is not None:
            note = f"{self._unfollowed}: would have run {planned}"
        elif self.assigned.is_trial and self.follows:
            note = f"canary, the plan's share; {note}" if note else "canary, the plan's share"
        if len(self._replanner.objectives) > 1 and not prefix:
            drawn = f"of two plans, the one for {self._replanner.objectives[0]} was drawn"
            note = f"{drawn}; {note}" if note else drawn
        if self._rows is not None:
            alone = self._rows.note()
            note = f"{note}; {alone}" if note and alone else note or alone
        self.steps.append(TraceStep("model", prefix, stage, model, elapsed_s, spent_usd, decision, note))
        return model, decision

    @property
    def _unfollowed(self) -> str:
        alone = "observed only" if self.mode == "observe" else "not proven"
        return "canary, today's share" if self.assigned.is_trial else alone

    def _fallback(self, failed: Invocation, tried: Collection[str]) -> str | None:
        stage, prefix = failed.stage, failed.prefix[:-1]
        latest_s, cap_usd = self.objective.max_latency_s, self.objective.max_cost_usd
        elapsed_s, spent_usd = self._used(prefix)
        spent_usd += failed.cost_usd
        decision: Decision | None = None
        model: str | None = None
        why = f"after {failed.prefix[-1]} ({failed.failure})"
        if latest_s is not None and elapsed_s >= latest_s:
            why += f": no other model, the {latest_s:g} s have passed"
        elif cap_usd is not None and spent_usd >= cap_usd:
            why += f": no other model, the ${cap_usd:g} are spent"
        else:
            self._replanner.exclude_failed(failed)
            tried = {*tried, *self._replanner.failed_at(prefix)}
            decision, note = self._fallback_plan(stage, prefix, tried, elapsed_s, spent_usd)
            planned = None if decision is None else decision.next_model
            model = planned or self._untried(stage, tried, spent_usd)
            why += f": {note or 'the next best model'}" if model else ": no other model is left"
        kind: Literal["model", "failed"] = "model" if model else "failed"
        self.steps.append(TraceStep(kind, prefix, stage, model, elapsed_s, spent_usd, decision, why))
        return model

    def _fallback_plan(
        self, stage: str, prefix: tuple[str, ...], tried: Collection[str], elapsed_s: float, spent_usd: float
    ) -> tuple[Decision | None, str]:
        try:
            return self._replanner.plan(stage, prefix, elapsed_s=elapsed_s, spent_usd=spent_usd, may_stop=False, tried=tried)
        except InfeasibleError as error:  # the failed call is what the application has to know
            return None, str(error)

    def _untried(self, stage: str, tried: Collection[str], spent_usd: float) -> str | None:
        """Return the first allowed model that has not failed and does not exceed the cap; used without a plan."""
        if self.objective.on_infeasible == "raise":
            return None
        allowed = next((known.models for known in self.template.stages if known.name == stage), None) or ()
        out = {*tried, *self.planner.metrics.missing}
        return next((model for model in allowed if model not in out and self._replanner.affords(model, spent_usd)), None)

    def _end_step(self, prefix: tuple[str, ...], arms: Collection[str] | None) -> TraceStep:
        """Decide at a conditional edge whether to continue after ``prefix``, and return the decision as a trace step.

        ``arms`` are the stages of which one comes next; None if unknown. If several stages may come, one plan is made for all
        of them.
        """
        elapsed_s, spent_usd = self._used(prefix)
        # If the template determines the next stages, no look into the trie is needed; otherwise the edge or the trie names
        # them.
        certain = [stage.name for stage in self.template.certain_stages[len(prefix) :][:1]]
        coming = certain or sorted(self._replanner.arms(prefix) if arms is None else set(arms))
        if not coming:
            return TraceStep("end", prefix, None, None, elapsed_s, spent_usd, None, "the last planned invocation")
        name = " or ".join(coming)
        if self._replanner.ends_at(prefix):
            note = "requests that show this end here"
            return TraceStep("end", prefix, name, None, elapsed_s, spent_usd, None, note)
        asked = coming[0] if len(coming) == 1 else frozenset(coming)
        decision, note = self._replanner.plan(asked, prefix, elapsed_s=elapsed_s, spent_usd=spent_usd, may_stop=True)
        model = self.default_model(coming[0]) if decision is None else decision.next_model
        if model is None and not self.follows:
            note = f"{self._unfollowed}: would have ended here"
        return TraceStep("end", prefix, name, model, elapsed_s, spent_usd, decision, note)

    def _add(self, invocation: Invocation) -> None:
        super()._add(invocation)
        if self._on_spent is not None:
            self._on_spent(invocation.cost_usd)
        prefix = invocation.prefix
        self._replanner.note_stage(prefix[:-1], invocation.stage)
        self._edge = None
        if prefix[:-1] not in self._accounted:
            self._inherit(prefix[:-1])
        self._accounted.add(prefix)
        expected_usd = self._expected_usd.pop(prefix, 0.0)
        if expected_usd:  # it was in flight, and its real cost replaces the expected one
            self._inherited_usd -= expected_usd
            if self.guard is not None:
                self.guard.add_inherited(-expected_usd)
        if self.guard is not None:
            self.guard.note_recorded(self.spent_usd)
            self._note_refusals(self.guard, invocation)
        if invocation.failure is not None:
            self._chosen.pop(prefix[:-1], None)
            self._replanner.exclude_failed(invocation)

    def _note_refusals(self, guard: SpendGuard, invocation: Invocation) -> None:
        """Record refused calls in the trace, and exclude their model if the stage runs again."""
        prefix, model = invocation.prefix[:-1], invocation.prefix[-1]
        for line in guard.take_refusals():
            self._replanner.exclude_refused(prefix, model)
            note = f"call refused: {line}"
            self.steps.append(TraceStep("refused", prefix, invocation.stage, model, *self._used(prefix), None, note))

    # -- time and money used, with the lock held -----------------------------------------------------------------

    def _excess_s(self, invocation: Invocation) -> float | None:
        if invocation.failure is not None or any(usage.is_equal for usage in invocation.usages):
            return None
        try:
            node = self._replanner.node(invocation.prefix)
        except KeyError:
            return None
        return invocation.latency_s - seconds_if_asked(self.planner.annotated, node)

    def _used(self, prefix: tuple[str, ...] = ()) -> tuple[float, float]:
        """Return the seconds since the request's arrival, and the dollars spent so far.

        The dollars include the calls of ``prefix`` that another process made.
        """
        elapsed_s = self.clock.now() - self.started_at
        self._elapsed_s = max(self._elapsed_s, elapsed_s)
        if prefix not in self._accounted:
            self._inherit(prefix)
        return self._elapsed_s, self.spent_usd + self._inherited_usd

    def _inherit(self, prefix: tuple[str, ...], costs_usd: Sequence[float | None] = ()) -> None:
        """Count the dollars of the calls of ``prefix`` that were not recorded here; each call is counted once.

        ``costs_usd`` has the dollars of each call; where it is None or missing, the expected cost is counted.
        """
        for k in range(1, len(prefix) + 1):
            if prefix[:k] not in self._accounted:
                recorded_usd = costs_usd[k - 1] if k <= len(costs_usd) else None
                usd = self._replanner.expected_usd(prefix[:k]) if recorded_usd is None else recorded_usd
                if self.guard is not None:
                    self.guard.add_inherited(usd)
                self._accounted.add(prefix[:k])  # last, so that anything that could not be counted is counted the next time
                self._inherited_usd += usd
                if not costs_usd:
                    self._expected_usd[prefix[:k]] = usd
