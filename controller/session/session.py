"""The policy of one request: plans again before every invocation, with the time and money really spent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from vinelm.clock import Clock
from vinelm.controller.load.load_view import LoadSource, SessionLoad
from vinelm.controller.planning.deadline_program import MOST_NODES
from vinelm.controller.planning.decision import Decision
from vinelm.controller.planning.planner import Planner
from vinelm.controller.session.replanner import Replanner
from vinelm.controller.session.trace import TraceStep
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.policies import Judge, SpendGuard, StopRulePolicy
from vinelm.protocols import Invocation, LoadMonitor
from vinelm.template import Template
from vinelm.trie import BoolArray
from vinelm.workflow import Request

Mode = Literal["enforce", "observe", "off"]
OnError = Literal["default", "raise"]
_MODES, _ON_ERROR = get_args(Mode), get_args(OnError)
PLAN_HOLDS_S = 0.05
"""A loop's edge plans for the invocation that follows it. If that begins within so many seconds, and no other invocation has
ended meanwhile, the plan stands: the time between the two is LangGraph's own step."""


class Session(StopRulePolicy):
    """A :class:`~vinelm.protocols.Policy` that plans for one request (VineLM paper §4.3).

    The prefix given re-roots the plan; time is read off the clock from ``started_at``, dollars from the recorded usages. A
    prefix that is asked for again (a retry, a fan-out) gets the same model, unless that model's call has failed since.
    Invocations of the prefix that another process ran count with the dollars it recorded, else with the expected ones. A stage
    that the trie does not hold there runs its declared default, and :meth:`trace` says so.

    With ``cost_budget="per_request"`` and ``mode="enforce"`` :attr:`guard` authorizes every call: one that could exceed the cap
    raises :class:`~vinelm.errors.CallRefused`, :meth:`trace` says so, and a stage that is run again gets another model.

    Thread-safe. The lock rule: everything that changes after construction is read and written with ``_lock`` held. Public
    methods take the lock; methods with a leading underscore expect it to be held. The judge and ``dispatched`` and
    ``finished`` of a load monitor are called without it; planning, which reads clock and load, with it. The guard has a lock of
    its own, which is taken after ``_lock`` and never the other way round.

    Args:
        planner: plans over the trie; shared by all sessions.
        objective: target and bounds of the request.
        clock: time as the request sees it; by default the machine's.
        request: the labelled request; None in an ordinary served call.
        judge: decides under the oracle stop whether the answer is right.
        started_at: the request's arrival in seconds of ``clock``; by default now.
        mode: ``"enforce"`` follows the plan, ``"observe"`` plans and changes nothing, ``"off"`` does not plan.
        on_error: ``"default"`` runs the default model after a failure of the controller itself; ``"raise"`` raises it. An
            objective with ``on_infeasible="raise"`` always raises.
        can_end: whether the controller may end the request after any answer; False where no edge of the graph is wrapped.
        candidates: nodes to end at, shape (n + 1,); None for all.
        load: read before each plan, must not block; a :class:`~vinelm.protocols.LoadMonitor` is also notified of this
            request's own calls.
        least_call_usd: returns the dollars reserved for even the smallest call of a model. Under a cap per request, a next
            model for which not even that is left is not planned.
        default: returns a stage's default model; by default what the template declares.
        template: the workflow's shape; by default the trie's.
    """

    guard: SpendGuard | None

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
        can_end: bool = True,
        candidates: BoolArray | None = None,
        load: LoadSource | LoadMonitor | None = None,
        least_call_usd: Callable[[str], float] | None = None,
        default: Callable[[str], str] | None = None,
        template: Template | None = None,
    ) -> None:
        if mode not in _MODES:
            raise ConfigError(f"mode is {mode!r}: use 'enforce', 'observe' or 'off'")
        if on_error not in _ON_ERROR:
            raise ConfigError(f"on_error is {on_error!r}: use 'default' or 'raise'")
        if objective.risk == "dp" and len(planner.trie) > MOST_NODES:
            raise ConfigError(f'risk="dp" plans over at most {MOST_NODES:,} paths, this trie has more: use risk="mean+sd"')
        super().__init__(
            template or planner.annotated.template, clock=clock, request=request, judge=judge, started_at=started_at
        )
        self.planner = planner
        self.objective = objective
        self.mode: Mode = mode
        self.on_error: OnError = on_error
        self.steps: list[TraceStep] = []
        if not can_end:
            candidates = planner.trie.is_leaf if candidates is None else candidates & planner.trie.is_leaf
        self._load = None if load is None else SessionLoad(load, planner)
        self._default = default
        self._chosen: dict[tuple[str, ...], str] = {}
        self._accounted: set[tuple[str, ...]] = {()}  # prefixes whose last invocation counts as spent, with all before it
        self._inherited_usd = 0.0
        self._elapsed_s = 0.0
        self._edge: TraceStep | None = None
        self.guard = None
        if objective.cost_budget == "per_request" and objective.max_cost_usd is not None and mode == "enforce":
            self.guard = SpendGuard(objective.max_cost_usd)
        self._replanner = Replanner(
            planner,
            objective,
            candidates=candidates,
            load=self._load,
            least_call_usd=least_call_usd if self.guard is not None else None,
            raises=on_error == "raise",
            is_off=mode == "off",
        )

    # -- the policy --------------------------------------------------------------------------------------------

    def next_model(self, stage: str, prefix: tuple[str, ...]) -> str:
        """Return the model for the invocation of ``stage`` after ``prefix``."""
        with self._lock:
            model = self._chosen.get(prefix)
            if model is None:
                model = self._chosen[prefix] = self._choose(stage, prefix)
        if self._load is not None:
            self._load.dispatched(model)
        return model

    def record(self, invocation: Invocation) -> None:
        """Record an invocation that has ended. After a failure its prefix is planned anew, around the failure if possible."""
        with self._lock:
            self._add(invocation)
            excess_s = None if self._load is None else self._excess_s(invocation)
        if self._load is not None:
            self._load.finished(invocation.prefix[-1], excess_s)

    def resumed(self, prefix: tuple[str, ...], costs_usd: Sequence[float | None]) -> None:
        """Count the dollars that another process spent on ``prefix``; expected ones where they are not recorded."""
        with self._lock:
            self._inherit(prefix, costs_usd)

    def interrupted(self, prefix: tuple[str, ...]) -> None:
        """Note that the invocation has no result and will be run again: its call is no longer in flight."""
        if self._load is not None:
            self._load.finished(prefix[-1], None)

    def should_continue(self, prefix: tuple[str, ...], finished: bool, state: Any) -> bool:
        """Return whether to go on: False where the stop rule ends the request or the plan does."""
        if self.has_ended(finished, state):
            return False
        with self._lock:
            step = self._edge = self._end_step(prefix)
            self.steps.append(step)
        return step.model is not None or (self.mode != "enforce" and step.stage is not None)

    def trace(self) -> list[dict[str, Any]]:
        """Return every answer given, in order, as plain JSON types."""
        with self._lock:
            steps = tuple(self.steps)
        return [step.to_dict() for step in steps]

    def last_step(self) -> Mapping[str, Any]:
        """Return the last item of :meth:`trace`, or an empty mapping."""
        with self._lock:
            step = self.steps[-1] if self.steps else None
        return {} if step is None else step.to_dict()

    def explain(self) -> str:
        """Return every answer with its alternatives, what each offers and why it was not chosen, as text."""
        with self._lock:
            steps = tuple(self.steps)
        return "\n\n".join(step.explain() for step in steps)

    @property
    def decisions(self) -> list[Decision]:
        """The plans made, in order."""
        with self._lock:
            return [step.decision for step in self.steps if step.decision is not None]

    def default_model(self, stage: str) -> str:
        """Return the stage's default model, as the creator of the session declares it."""
        return super().default_model(stage) if self._default is None else self._default(stage)

    def elapsed_s(self) -> float:
        """Return the seconds since the request's arrival; never decreases, whatever the clock does."""
        with self._lock:
            return self._elapsed()

    # -- one answer, with the lock held --------------------------------------------------------------------------

    def _choose(self, stage: str, prefix: tuple[str, ...]) -> str:
        elapsed_s, spent_usd = self._elapsed(), self._spent(prefix)
        edge, self._edge = self._edge, None
        if edge is not None and _plans_for(edge, stage, prefix) and elapsed_s - edge.elapsed_s <= PLAN_HOLDS_S:
            decision, note = edge.decision, edge.note
        else:
            decision, note = self._replanner.plan(stage, prefix, elapsed_s=elapsed_s, spent_usd=spent_usd, may_stop=False)
        planned = None if decision is None else decision.next_model
        model = planned if planned is not None and self.mode == "enforce" else self.default_model(stage)
        if self.mode == "observe" and planned is not None:
            note = f"observed only: would have run {planned}"
        self.steps.append(TraceStep("model", prefix, stage, model, elapsed_s, spent_usd, decision, note))
        return model

    def _end_step(self, prefix: tuple[str, ...]) -> TraceStep:
        elapsed_s, spent_usd = self._elapsed(), self._spent(prefix)
        following = self.template.stage_after(len(prefix))
        if following is None:
            return TraceStep("end", prefix, None, None, elapsed_s, spent_usd, None, "the last planned invocation")
        decision, note = self._replanner.plan(following.name, prefix, elapsed_s=elapsed_s, spent_usd=spent_usd, may_stop=True)
        model = following.default_model if decision is None else decision.next_model
        if self.mode == "observe" and decision is not None and decision.stop:
            note = "observed only: would have ended here"
        return TraceStep("end", prefix, following.name, model, elapsed_s, spent_usd, decision, note)

    def _add(self, invocation: Invocation) -> None:
        super()._add(invocation)
        prefix = invocation.prefix
        self._edge = None
        if prefix[:-1] not in self._accounted:
            self._inherit(prefix[:-1])
        self._accounted.add(prefix)
        if self.guard is not None:
            self.guard.note_recorded(self.spent_usd)
            self._note_refusals(self.guard, invocation)
        if invocation.failure is not None:
            self._chosen.pop(prefix[:-1], None)
            self._replanner.exclude_failed(invocation)

    def _note_refusals(self, guard: SpendGuard, invocation: Invocation) -> None:
        """Note in the trace which calls were not made, and plan without that model should the stage be run again."""
        prefix, model = invocation.prefix[:-1], invocation.prefix[-1]
        for line in guard.take_refusals():
            self._replanner.exclude_refused(prefix, model)
            note = f"call refused: {line}"
            spent_usd = self._spent(prefix)
            self.steps.append(TraceStep("refused", prefix, invocation.stage, model, self._elapsed(), spent_usd, None, note))

    # -- time and money used, with the lock held -----------------------------------------------------------------

    def _excess_s(self, invocation: Invocation) -> float | None:
        if invocation.failure is not None:
            return None
        try:
            node = self._replanner.node(invocation.prefix)
        except KeyError:
            return None
        return invocation.latency_s - float(self.planner.annotated.latency_s[node])

    def _elapsed(self) -> float:
        elapsed_s = self.clock.now() - self.started_at
        self._elapsed_s = max(self._elapsed_s, elapsed_s)
        return self._elapsed_s

    def _spent(self, prefix: tuple[str, ...]) -> float:
        """Dollars recorded here and those that another process spent on the prefix."""
        if prefix not in self._accounted:
            self._inherit(prefix)
        return self.spent_usd + self._inherited_usd

    def _inherit(self, prefix: tuple[str, ...], costs_usd: Sequence[float | None] = ()) -> None:
        """Count the invocations of the prefix that were not recorded here, each once."""
        for k in range(1, len(prefix) + 1):
            if prefix[:k] not in self._accounted:
                self._accounted.add(prefix[:k])
                recorded_usd = costs_usd[k - 1] if k <= len(costs_usd) else None
                usd = self._replanner.expected_usd(prefix[:k]) if recorded_usd is None else recorded_usd
                self._inherited_usd += usd
                if self.guard is not None:
                    self.guard.add_inherited(usd)


def _plans_for(edge: TraceStep, stage: str, prefix: tuple[str, ...]) -> bool:
    """Whether the loop's edge has planned for this very invocation."""
    return edge.decision is not None and not edge.decision.stop and (edge.stage, edge.prefix) == (stage, prefix)
