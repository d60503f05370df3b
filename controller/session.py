"""One request: asks the planner before every invocation, with what has really been spent, and keeps the reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, get_args

import numpy as np

from vinelm.controller.decision import Decision
from vinelm.controller.following import Following, Judge
from vinelm.controller.guard import SpendGuard
from vinelm.controller.planner import Planner
from vinelm.controller.query import load_array
from vinelm.controller.step import Step
from vinelm.controller.stochastic import MOST_NODES
from vinelm.errors import ConfigError, InfeasibleError, VineLMError
from vinelm.objective import Objective
from vinelm.protocols import Clock, Invocation, LoadMonitor
from vinelm.template import Template
from vinelm.trie import BoolArray, FloatArray
from vinelm.workflow import Request

Mode = Literal["enforce", "observe", "off"]
OnError = Literal["default", "raise"]
Load = Callable[[], Mapping[str, float]]
"""Extra seconds per invocation by engine, as far as they are known now. Must not block."""


class Session(Following):
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
      that may block belongs into an :class:`~vinelm.controller.apart.ApartLoad`.
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
        load: Load | LoadMonitor | None = None,
        least_call_usd: Callable[[str], float] | None = None,
        default: Callable[[str], str] | None = None,
        template: Template | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise ConfigError(f"mode is {mode!r}: use 'enforce', 'observe' or 'off'")
        if on_error not in get_args(OnError):
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
        self.steps: list[Step] = []
        self._candidates = candidates
        if not can_end:
            leaves = planner.trie.is_leaf
            self._candidates = leaves if candidates is None else candidates & leaves
        self._load = load
        self._default = default
        self._chosen: dict[tuple[str, ...], str] = {}
        self._nodes: dict[tuple[str, ...], int] = {(): 0}
        self._seen: set[tuple[str, ...]] = set()
        self._elapsed_s = 0.0
        self._at: tuple[str, ...] = ()
        self._least_call_usd = least_call_usd
        self._refused: dict[tuple[str, ...], set[str]] = {}
        self.guard: SpendGuard | None = None
        """Whom a backend asks before each call; None where no cap holds for this very request."""
        if mode == "enforce" and objective.cost_budget == "per_request" and objective.max_cost_usd is not None:
            self.guard = SpendGuard(objective.max_cost_usd, lambda: self._spent(self._at))

    # -- the policy --------------------------------------------------------------------------------------------

    def next(self, stage: str, prefix: tuple[str, ...]) -> str:
        """The model for the invocation of ``stage`` after ``prefix``."""
        with self._lock:
            self._at = prefix
            model = self._chosen.get(prefix)
            if model is None:
                model = self._chosen[prefix] = self._choose(stage, prefix)
            self._tell(model, None)
            return model

    def record(self, invocation: Invocation) -> None:
        """Count its dollars. After a failure the same prefix is planned anew."""
        super().record(invocation)
        self._seen.add(invocation.prefix)
        self._tell(invocation.prefix[-1], invocation)
        if self.guard is not None:
            self._note_refusals(self.guard, invocation)
        if invocation.failure is not None:
            with self._lock:
                self._chosen.pop(invocation.prefix[:-1], None)

    def again(self, prefix: tuple[str, ...], finished: bool, state: Any) -> bool:
        """Whether to go on: not where the stop rule has spoken, nor where the plan ends."""
        if self.has_ended(finished, state):
            return False
        with self._lock:
            step = self._end_step(prefix)
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
        decision, note = self._plan(stage, prefix, may_stop=False)
        planned = None if decision is None else decision.next_model
        model = planned if planned is not None and self.mode == "enforce" else self.default_model(stage)
        if self.mode == "observe" and planned is not None:
            note = f"observed only: would have run {planned}"
        self.steps.append(Step("model", prefix, stage, model, self._elapsed_s, self._spent(prefix), decision, note))
        return model

    def _end_step(self, prefix: tuple[str, ...]) -> Step:
        following = self.template.stage_after(len(prefix)) if self.template else None
        if following is None:
            return Step("end", prefix, None, None, self.elapsed_s(), self._spent(prefix), None, "the last planned invocation")
        decision, note = self._plan(following.name, prefix, may_stop=True)
        model = following.default_model if decision is None else decision.next_model
        if self.mode == "observe" and decision is not None and decision.stop:
            note = "observed only: would have ended here"
        return Step("end", prefix, following.name, model, self._elapsed_s, self._spent(prefix), decision, note)

    def _plan(self, stage: str, prefix: tuple[str, ...], *, may_stop: bool) -> tuple[Decision | None, str]:
        """A plan, or None and why there is none."""
        try:
            elapsed_s, spent_usd = self.elapsed_s(), self._spent(prefix)
            if self.mode == "off":
                return None, "the controller is off"
            node = self._node(prefix)
            if self._stage_after(node) != stage:
                return None, f"stage {stage!r} after {len(prefix)} invocations is not planned for: default model"
            load, note = self._read_load()
            if self.planner.known.missing:
                gone = f"not served any more, left out: {', '.join(self.planner.known.missing)}"
                note = f"{note}; {gone}" if note else gone
            decision = self.planner.plan(
                self.objective,
                node=node,
                elapsed_s=elapsed_s,
                spent_usd=spent_usd,
                load=load,
                candidates=self._affordable(node, prefix, spent_usd),
                may_stop=may_stop,
            )
            return decision, note
        except KeyError:
            return None, f"the path {'/'.join(prefix)} is not planned for: default model"
        except InfeasibleError as error:
            if self.on_error == "raise" or self.objective.on_infeasible == "raise":
                raise
            return None, f"{error}: default model"
        except Exception as error:
            if self.on_error == "raise":
                raise
            why = str(error) if isinstance(error, VineLMError) else type(error).__name__
            return None, f"the controller failed ({why}): default model"

    def _note_refusals(self, guard: SpendGuard, invocation: Invocation) -> None:
        """Say in the trace which calls were not made, and plan without that model should the stage be run again."""
        *before, model = invocation.prefix
        for line in guard.take_refusals():
            with self._lock:
                prefix = tuple(before)
                self._refused.setdefault(prefix, set()).add(model)
                spent_usd = self._spent(prefix)
                step = Step(
                    "refused", prefix, invocation.stage, model, self.elapsed_s(), spent_usd, None, f"call refused: {line}"
                )
                self.steps.append(step)

    def _affordable(self, node: int, prefix: tuple[str, ...], spent_usd: float) -> BoolArray | None:
        """The nodes to plan to: none behind a next model whose call the guard would refuse."""
        if self.guard is None or self.objective.max_cost_usd is None:
            return self._candidates
        trie, left_usd, refused = self.planner.trie, self.objective.max_cost_usd - spent_usd, self._refused.get(prefix, ())
        affordable = None
        for child in trie.children(node):
            model = trie.models[int(trie.model[child])]
            if model in refused or (self._least_call_usd is not None and self._least_call_usd(model) > left_usd):
                if affordable is None:
                    affordable = np.ones(len(trie), np.bool_) if self._candidates is None else self._candidates.copy()
                affordable[child : int(trie.end[child])] = False
        return self._candidates if affordable is None else affordable

    def _node(self, prefix: tuple[str, ...]) -> int:
        """The node of a prefix; ``KeyError`` if the trie has none."""
        node = self._nodes.get(prefix)
        if node is None:
            node = self._nodes[prefix] = self.planner.known.child(self._node(prefix[:-1]), prefix[-1])
        return node

    def _stage_after(self, node: int) -> str | None:
        """The stage that the trie has next; a template determines it, so the first child tells."""
        trie = self.planner.trie
        return trie.stages[int(trie.stage[node + 1])] if trie.end[node] > node + 1 else None

    def _read_load(self) -> tuple[FloatArray | None, str]:
        """The present load; none where its source fails, which must not cost the plan."""
        if self._load is None:
            return None, ""
        engines = self.planner.annotated.engines
        try:
            if callable(self._load):
                return load_array(self._load(), engines), ""
            extra_s, stale = {}, []
            for engine, delay in self._load.delays().items():
                if delay.extra_s:
                    extra_s[engine] = delay.extra_s
                if delay.is_stale:
                    stale.append(engine)
            note = f"old load report of {', '.join(sorted(stale))}" if stale else ""
            return (load_array(extra_s, engines) if extra_s else None), note
        except Exception as error:
            why = str(error) if isinstance(error, VineLMError) else type(error).__name__
            return None, f"no load known ({why}): planned without"

    def _tell(self, model: str, invocation: Invocation | None) -> None:
        """Count a call out, or in again with what it took beyond zero load. A monitor that fails costs nothing."""
        engine = self.planner.engine_of.get(model)
        if self._load is None or callable(self._load) or engine is None:
            return
        with suppress(Exception):
            if invocation is None:
                self._load.dispatched(engine)
            else:
                self._load.finished(engine, self._excess_s(invocation))

    def _excess_s(self, invocation: Invocation) -> float | None:
        if invocation.failure is not None:
            return None
        try:
            node = self._node(invocation.prefix)
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
        unseen = [prefix[:k] for k in range(1, len(prefix) + 1) if prefix[:k] not in self._seen]
        if not unseen:
            return self.spent_usd
        try:
            cost_usd = self.planner.annotated.cost_usd
            return self.spent_usd + float(sum(cost_usd[self._node(path)] for path in unseen))
        except KeyError:
            return self.spent_usd
