"""One request: asks the planner before every invocation, with what has really been spent, and keeps the reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from vinelm.clock import Clock
from vinelm.controller.load.load_view import LoadSource, SessionLoad
from vinelm.controller.planning.deadline_program import MOST_NODES
from vinelm.controller.planning.decision import Decision
from vinelm.controller.planning.planner import Planner
from vinelm.controller.session.replanner import Replanner
from vinelm.controller.session.spend_guard import SpendGuard
from vinelm.controller.session.trace import TraceStep
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.policies import Judge, RecordingPolicy
from vinelm.protocols import Invocation, LoadMonitor
from vinelm.template import Template
from vinelm.trie import BoolArray
from vinelm.workflow import Request

Mode = Literal["enforce", "observe", "off"]
OnError = Literal["default", "raise"]
_MODES, _ON_ERROR = get_args(Mode), get_args(OnError)
PLAN_HOLDS_S = 0.05
"""A loop's edge plans for the invocation that follows it. If that begins within so many seconds, and no other invocation has
ended meanwhile, the plan stands: what goes by between the two is LangGraph's own step."""


class Session(RecordingPolicy):
    """A :class:`~vinelm.protocols.Policy` for one request (§4.3).

    The prefix given re-roots the plan; time is read off the clock from ``started_at``, dollars from the recorded usages. A
    prefix that is asked for again (a retry, a fan-out) gets the same model, unless that model's call has failed since.
    Invocations of the prefix that this session did not see (a resumed run) count with their expected dollars. A stage that the
    trie does not hold there runs its declared default, and :meth:`trace` says so.

    - ``mode``: ``"enforce"`` follows the plan, ``"observe"`` plans and changes nothing, ``"off"`` does not plan.
    - ``on_error``: ``"default"`` turns the controller's own failure into the default model; ``"raise"`` hands it on. An
      objective with ``on_infeasible="raise"`` always raises.
    - ``can_end``: the controller may end the request after any answer; False where the graph's edge is not wrapped.
    - ``load``: read before each plan; a :class:`~vinelm.protocols.LoadMonitor` is also told of this request's own calls. One
      that may block belongs into an :class:`~vinelm.controller.BackgroundLoadMonitor`.
    - ``default``: a stage's default model, by default what the template declares.
    - ``least_call_usd``: dollars that are set aside for any call of a model, by name. Where the budget is per request, a next
      model for which not even that is left is not planned.

    With ``cost_budget="per_request"`` (and ``mode="enforce"``) :attr:`guard` stands before every call: one that could exceed
    the cap raises :class:`~vinelm.errors.CallRefused`, :meth:`trace` says so, and a stage that is run again gets another model.
    """

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
        self._sight = None if load is None else SessionLoad(load, planner)
        self._default = default
        self._chosen: dict[tuple[str, ...], str] = {}
        self._seen: set[tuple[str, ...]] = set()
        self._whole: set[tuple[str, ...]] = {()}  # prefixes all of whose invocations were seen
        self._elapsed_s = self._spent_now_usd = 0.0
        self._at: tuple[str, ...] = ()
        self._edge: TraceStep | None = None
        self.guard: SpendGuard | None = None
        """Whom a backend asks before each call; None where no cap holds for this very request."""
        if objective.cost_budget == "per_request" and objective.max_cost_usd is not None and mode == "enforce":
            self.guard = SpendGuard(objective.max_cost_usd, lambda: self._spent(self._at))
        self._replanning = Replanner(
            planner,
            objective,
            candidates=candidates,
            sight=self._sight,
            least_call_usd=least_call_usd if self.guard is not None else None,
            raises=on_error == "raise",
        )

    # -- the policy --------------------------------------------------------------------------------------------

    def next(self, stage: str, prefix: tuple[str, ...]) -> str:
        """The model for the invocation of ``stage`` after ``prefix``."""
        with self._lock:
            self._at = prefix
            model = self._chosen.get(prefix)
            if model is None:
                model = self._chosen[prefix] = self._choose(stage, prefix)
        if self._sight is not None:
            self._sight.dispatched(model)
        return model

    def interrupted(self, prefix: tuple[str, ...]) -> None:
        """The invocation ended without an outcome, to be run again: neither a call under way nor one that tells anything."""
        if self._sight is not None:
            self._sight.finished(prefix[-1], None)

    def record(self, invocation: Invocation) -> None:
        """Count its dollars. After a failure the same prefix is planned anew, around what failed if there is a way around."""
        super().record(invocation)
        self._edge = None
        prefix = invocation.prefix
        self._seen.add(prefix)
        if prefix[:-1] in self._whole:
            self._whole.add(prefix)
        if self._sight is not None:
            self._sight.finished(prefix[-1], self._excess_s(invocation))
        if self.guard is not None:
            self._note_refusals(self.guard, invocation)
        if invocation.failure is not None:
            with self._lock:
                self._chosen.pop(prefix[:-1], None)
                self._replanning.barred.fail(invocation)

    def again(self, prefix: tuple[str, ...], finished: bool, state: Any) -> bool:
        """Whether to go on: not where the stop rule has spoken, nor where the plan ends."""
        if self.has_ended(finished, state):
            return False
        with self._lock:
            step = self._edge = self._end_step(prefix)
            self.steps.append(step)
        if self.mode != "enforce" and self._judge is None:
            return True
        return step.model is not None or (self.mode != "enforce" and step.stage is not None)

    def trace(self) -> list[dict[str, Any]]:
        """Every answer given, in order, as plain JSON types."""
        return [step.to_dict() for step in self.steps]

    def explain(self) -> str:
        """Every answer with its alternatives, what each would have brought and why it lost, as text."""
        return "\n\n".join(step.explain() for step in self.steps)

    @property
    def decisions(self) -> list[Decision]:
        """The plans made, in order."""
        return [step.decision for step in self.steps if step.decision is not None]

    # -- one answer --------------------------------------------------------------------------------------------

    def _choose(self, stage: str, prefix: tuple[str, ...]) -> str:
        decision, note = self._plan_of_the_edge(stage, prefix) or self._plan(stage, prefix, may_stop=False)
        planned = None if decision is None else decision.next_model
        model = planned if planned is not None and self.mode == "enforce" else self.default_model(stage)
        if self.mode == "observe" and planned is not None:
            note = f"observed only: would have run {planned}"
        self.steps.append(TraceStep("model", prefix, stage, model, self._elapsed_s, self._spent_now_usd, decision, note))
        return model

    def _plan_of_the_edge(self, stage: str, prefix: tuple[str, ...]) -> tuple[Decision, str] | None:
        """What the loop's edge has planned just now, if that was for this very invocation."""
        edge, self._edge = self._edge, None
        if edge is None or edge.decision is None or edge.decision.stop or (edge.stage, edge.prefix) != (stage, prefix):
            return None
        return (edge.decision, edge.note) if self.elapsed_s() - edge.elapsed_s <= PLAN_HOLDS_S else None

    def _end_step(self, prefix: tuple[str, ...]) -> TraceStep:
        following = self.template.stage_after(len(prefix)) if self.template else None
        if following is None:
            return TraceStep(
                "end", prefix, None, None, self.elapsed_s(), self._spent(prefix), None, "the last planned invocation"
            )
        decision, note = self._plan(following.name, prefix, may_stop=True)
        model = following.default_model if decision is None else decision.next_model
        if self.mode == "observe" and decision is not None and decision.stop:
            note = "observed only: would have ended here"
        return TraceStep("end", prefix, following.name, model, self._elapsed_s, self._spent_now_usd, decision, note)

    def _plan(self, stage: str, prefix: tuple[str, ...], *, may_stop: bool) -> tuple[Decision | None, str]:
        """A plan, or None and why there is none."""
        self._spent_now_usd = self._spent(prefix)
        elapsed_s = self.elapsed_s()
        if self.mode == "off":
            return None, "the controller is off"
        return self._replanning.plan(stage, prefix, elapsed_s=elapsed_s, spent_usd=self._spent_now_usd, may_stop=may_stop)

    def _note_refusals(self, guard: SpendGuard, invocation: Invocation) -> None:
        """Say in the trace which calls were not made, and plan without that model should the stage be run again."""
        prefix, model = invocation.prefix[:-1], invocation.prefix[-1]
        for line in guard.take_refusals():
            with self._lock:
                self._replanning.barred.refuse(prefix, model)
                note = f"call refused: {line}"
                step = TraceStep("refused", prefix, invocation.stage, model, self.elapsed_s(), self._spent(prefix), None, note)
                self.steps.append(step)

    def _excess_s(self, invocation: Invocation) -> float | None:
        if invocation.failure is not None:
            return None
        try:
            node = self._replanning.node(invocation.prefix)
        except KeyError:
            return None
        return invocation.latency_s - float(self.planner.annotated.latency_s[node])

    def default_model(self, stage: str) -> str:
        """The stage's default, as whoever made the session declares it."""
        return super().default_model(stage) if self._default is None else self._default(stage)

    # -- what the request has used -----------------------------------------------------------------------------

    def elapsed_s(self) -> float:
        """Seconds since the request's arrival; never goes back, whatever the clock does."""
        self._elapsed_s = max(self._elapsed_s, self.clock.now() - self.started_at)
        return self._elapsed_s

    def _spent(self, prefix: tuple[str, ...]) -> float:
        """Dollars recorded, and the expected ones of invocations that another process ran."""
        if prefix in self._whole:
            return self.spent_usd
        unseen = [prefix[:k] for k in range(1, len(prefix) + 1) if prefix[:k] not in self._seen]
        try:
            cost_usd = self.planner.annotated.cost_usd
            return self.spent_usd + float(sum(cost_usd[self._replanning.node(path)] for path in unseen))
        except KeyError:
            return self.spent_usd
