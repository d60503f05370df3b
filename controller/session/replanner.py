"""Plans during a request: passes the request's state to the planner, and turns failures into notes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TypedDict

from vinelm.controller.load.load_view import SessionLoad
from vinelm.controller.planner import Planner
from vinelm.controller.planning.decision import Decision
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.controller.session.excluded_models import ExcludedModels
from vinelm.controller.session.seen_outcomes import Belief
from vinelm.errors import InfeasibleError, VineLMError
from vinelm.objective import Objective
from vinelm.requests.protocols import Invocation
from vinelm.signals import Outcome
from vinelm.template.bounds import exceeded_words
from vinelm.template.template import stage_title
from vinelm.trie.arrays import FloatArray


class Replanner:
    """Makes the plans for one request. Not thread-safe: the session calls it with the session's lock held.

    Args:
        planner: plans over the trie; shared by all requests.
        objective: target and bounds of the request.
        load: the engines' load; None to plan without load.
        least_call_usd: returns the dollars reserved for even the smallest call of a model; a model that exceeds what is left
            of ``max_cost_usd`` is not planned. None if money is not checked.
        raises: whether to raise internal failures of the controller instead of noting them.
        is_off: whether to make no plans.

    Attributes:
        follows: whether the request runs the planned models.
        objectives: the request's objective. Under a traffic split, the objective whose plan was drawn for the request comes
            before it. The first objective whose bounds can be met is used.
        seen: the outcomes of the request's calls so far.
    """

    __slots__ = (
        "_excluded",
        "_is_off",
        "_kind",
        "_least_call_usd",
        "_load",
        "_nodes",
        "_objective",
        "_planner",
        "_raises",
        "_stages",
        "_template",
        "follows",
        "objectives",
        "seen",
    )

    def __init__(
        self,
        planner: Planner,
        objective: Objective,
        *,
        load: SessionLoad | None,
        least_call_usd: Callable[[str], float] | None,
        raises: bool,
        is_off: bool,
        follows: bool,
    ) -> None:
        self._planner, self._objective = planner, objective
        self._load, self._raises, self._is_off = load, raises, is_off
        self.follows = follows
        self.objectives: tuple[Objective, ...] = (objective,)
        # A prefix is followed through the trie once. A stage or an outcome that is noted later moves only longer prefixes.
        self._nodes: dict[tuple[str, ...], int] = {(): 0}
        self._stages: dict[tuple[str, ...], str] = {}
        self._least_call_usd = least_call_usd
        self._excluded = None if least_call_usd is None else ExcludedModels(planner, least_call_usd)
        self._template = planner.annotated.template
        self._kind = self._template.counts_as(None)
        self.seen = Belief.over(planner.annotated, self.node)

    def plan(
        self,
        stage: str | frozenset[str],
        prefix: tuple[str, ...],
        *,
        elapsed_s: float,
        spent_usd: float,
        may_stop: bool,
        tried: Collection[str] = (),
    ) -> tuple[Decision | None, str]:
        """Return the plan for the call of ``stage`` after ``prefix``, and a note. Without a plan, return None and the reason.

        The note says what limits the plan, such as models left out or old load reports; it is empty if nothing does. If
        ``stage`` contains several stages, one of them comes next, and the request must end or continue before it is known
        which. Models in ``tried`` are not planned next.

        Raises:
            InfeasibleError: no path meets the bounds, and either the objective has ``on_infeasible="raise"`` or internal
                failures are raised. If plans are not followed, this is raised only if ``prefix`` is empty.
        """
        if self._is_off:
            return None, "the controller is off"
        planner = self._planner
        try:
            # Noted before the node of any longer prefix is sought: where several stages may follow, that depends on it.
            if isinstance(stage, str) and self._stages.setdefault(prefix, stage) != stage:
                self.note_stage(prefix, stage)
            node = self._nodes.get(prefix)
            if node is None:
                node = self.node(prefix)
            stage = self._of_kind(stage)
            stage, note = self.seen.titles(prefix, stage)
            # Usually, if one stage follows or the first of several is requested, this is a single lookup in an array.
            usual = int(planner.trie.next_stage[node])
            if (usual < 0 or planner.trie.stages[usual] != stage) and planner.lacks(stage, node):
                return None, self._lacking(stage, prefix)
            # Read for each decision: between two calls of a request an engine may fill up, and the rest of the path can still
            # avoid it.
            load_s: FloatArray | None = None
            if self._load is not None:
                load_s, more = self._load.read()
                note = _noted(note, more) if more else note
            if planner.metrics.missing:
                note = _noted(note, f"not served any more, left out: {', '.join(planner.metrics.missing)}")
            here: _Position = {
                "node": node,
                "elapsed_s": elapsed_s,
                "spent_usd": spent_usd,
                "load": load_s,
                "may_stop": may_stop,
                "stage": stage,
            }
            if self._excluded is None:
                return self._best(here), note
            decision, why = self._without_excluded(self._excluded, here, prefix, tried)
            return decision, _noted(note, why)
        # No fault: the application may run models, or take branches, that were never profiled.
        except KeyError:
            return None, f"the path {'/'.join(prefix)} is not planned for: default model"
        except InfeasibleError as error:
            # If a request runs other models than its plans, exceeding their bounds is not the plans' choice.
            if (self.follows or not prefix) and (self._raises or self._objective.on_infeasible == "raise"):
                raise
            return None, f"{error}: default model"
        # A plan only saves money: if the controller fails, the request still runs, on the stage's default model.
        except Exception as error:
            if self._raises:
                raise
            why = str(error) if isinstance(error, VineLMError) else type(error).__name__
            return None, f"the controller failed ({why}): default model"

    def _best(self, here: _Position, *, without: Collection[str] = ()) -> Decision:
        """Return the plan for the first of :attr:`objectives` whose bounds can still be met, otherwise the plan for the last of
        them.
        """
        return self._planner.plan_first(self.objectives, without=without, **here)

    def node(self, prefix: tuple[str, ...]) -> int:
        """Return the trie's node for a prefix; raises ``KeyError`` if the trie has no such node."""
        node = self._nodes.get(prefix)
        if node is None:
            before = self.node(prefix[:-1])
            stage = self._stages.get(prefix[:-1])
            stage = self._stage_of_kind(before, stage)
            stage = self.seen.arm(prefix[:-1], stage)[0]
            if stage is None and len(self._planner.trie.arms(before)) > 1:
                raise KeyError(prefix[-1])  # it is unknown which of several stages ran
            node = self._nodes[prefix] = self._planner.metrics.child(before, prefix[-1], stage)
        return node

    def begin(self, kind: str | None) -> str | None:
        """Plan for a request of type ``kind`` from now on, and return the type that the request counts as.

        The result is None if plans do not distinguish types. A request of unknown type counts as
        :data:`~vinelm.template.template.OTHER`.
        """
        counts_as = self._template.counts_as(kind)
        if counts_as != self._kind:
            # Request types have separate branches from the root on, so no cached node stays valid.
            self._kind = counts_as
            self._nodes = {(): 0}
        return counts_as or None

    def _of_kind(self, stage: str | frozenset[str]) -> str | frozenset[str]:
        """Return the names that the trie gives this stage (or these stages) for requests of the present type."""
        if isinstance(stage, str):
            return stage_title(stage, self._kind)
        return frozenset(stage_title(name, self._kind) for name in stage)

    def _stage_of_kind(self, before: int, stage: str | None) -> str | None:
        """Return the name that the trie gives ``stage`` for requests of the present type.

        If ``stage`` is None, return the name of the only stage of this type that can follow the node ``before``. The result is
        None if several or no such stages can follow, or if types are not distinguished.
        """
        if stage is not None or not self._kind:
            return stage and stage_title(stage, self._kind)
        # The branches decide if only one of them belongs to this type. Two could have run, and a guess would spoil the path.
        own = {self._own(arm) for arm in self._planner.trie.arms(before)} - {None}
        return stage_title(own.pop() or "", self._kind) if len(own) == 1 else None

    def _own(self, arm: str) -> str | None:
        """Return the application's name for the stage to which the trie's branch ``arm`` leads.

        None if the branch is for requests of another type than the present one.
        """
        stage, kind = self._planner.annotated.arm_stages[arm]
        return self._template.base_stages[stage] if kind == self._kind else None

    def note_stage(self, prefix: tuple[str, ...], stage: str) -> None:
        """Record that the application runs ``stage`` after the calls ``prefix``, which decides the branch of the trie."""
        if self._stages.get(prefix) != stage:
            self._stages[prefix] = stage
            self._forget_below(prefix)

    def note_outcome(self, prefix: tuple[str, ...], outcome: Outcome) -> None:
        """Record the outcome of the last call of ``prefix``, if plans depend on outcomes."""
        if self.seen.note(prefix, outcome):
            self._forget_below(prefix)

    def note_verdict(self, prefix: tuple[str, ...], passed: bool) -> None:
        """Record whether the last answer of ``prefix`` passed the workflow's check, if plans depend on the check."""
        if self.seen.note_check(prefix, passed):
            self._forget_below(prefix)

    def returned(self, prefix: tuple[str, ...]) -> int | None:
        """Return which answer a request that ends after ``prefix`` should return; None means its last answer.

        The result is the number of a class: answers of the request that agree.
        """
        if self._is_off:
            return None
        with suppress(KeyError):
            return self.seen.returned_class(prefix)
        return None

    def ends_at(self, prefix: tuple[str, ...]) -> bool:
        """Return whether, according to the trie, requests with the outcomes so far end after ``prefix``.

        False if the trie lacks this prefix.
        """
        with suppress(KeyError):
            return self.seen.ends_at(prefix)
        return False

    def _forget_below(self, prefix: tuple[str, ...]) -> None:
        # The prefix itself stays: its node depends on what came before it, not on what it has just shown.
        self._nodes = {known: node for known, node in self._nodes.items() if known[: len(prefix)] != prefix or known == prefix}

    def arms(self, prefix: tuple[str, ...]) -> tuple[str, ...]:
        """Return the stages that may follow ``prefix`` in the trie; empty after the last call or an unknown prefix."""
        with suppress(KeyError):
            found = map(self._own, self._planner.trie.arms(self.node(prefix)))
            return tuple(dict.fromkeys(name for name in found if name is not None))
        return ()

    def _lacking(self, stage: str | frozenset[str], prefix: tuple[str, ...]) -> str:
        """Return a sentence that says why no plan is made: the trie lacks the stage after ``prefix``."""
        names = repr(stage) if isinstance(stage, str) else " or ".join(map(repr, sorted(stage)))
        # The usual reason is a loop that ran more turns than the template allows: then the limit is named, which can be raised.
        before = tuple(self._stages.get(prefix[:k], "") for k in range(len(prefix)))
        template = self._template.base
        for name in (stage,) if isinstance(stage, str) else sorted(stage):
            exceeded = exceeded_words(template, template.stages_along(len(prefix), before), name)
            if exceeded is not None:
                return f"after {'/'.join(prefix)} {exceeded}: default model"
        return f"the template has no arm {names} after {'/'.join(prefix) or 'the start'}, it is not planned for: default model"

    def comes_next(self, prefix: tuple[str, ...], stages: Collection[str], plan: Decision | None) -> float | None:
        """Return the trie's P(one of ``stages`` comes right after ``prefix``); None if the trie lacks the prefix.

        Args:
            prefix: models of the calls so far; the last call's answer is still unknown.
            stages: stages of the workflow.
            plan: a plan that reaches the prefix; branches on which it ends the request do not count. If None, all branches
                count.
        """
        try:
            node = self.node(prefix)
        except KeyError:
            return None
        # A tool started for a branch on which the plan ends would run in vain, so such branches do not count.
        after = self._planner.annotated.comes_next(node).items()
        return math.fsum(p for arm, p in after if self._own(arm) in stages and (plan is None or plan.goes_on(node, arm)))

    def expected_usd(self, prefix: tuple[str, ...]) -> float:
        """Return the expected cost of the last call of ``prefix``, in dollars; 0 if the trie lacks the prefix."""
        with suppress(KeyError):
            return float(self._planner.annotated.cost_usd[self.node(prefix)])
        return 0.0

    def expected_s(self, prefix: tuple[str, ...]) -> float | None:
        """Return the expected latency of the last call of ``prefix``, in seconds; None if the trie lacks the prefix."""
        try:
            return float(self._planner.annotated.latency_s[self.node(prefix)])
        except KeyError:
            return None

    def planned_again(self, asked: PlanRequest, objective: Objective) -> Decision:
        """Return a plan for another objective, made from the same position, time and money as the earlier request ``asked``.

        Raises:
            InfeasibleError: see :meth:`Planner.plan`.
        """
        return self._planner.plan(
            objective,
            node=asked.node,
            elapsed_s=asked.elapsed_s,
            spent_usd=asked.spent_usd,
            load=asked.load_s,
            candidates=asked.candidates,
            may_stop=asked.may_stop,
        )

    def failed_at(self, prefix: tuple[str, ...]) -> Collection[str]:
        """Return the models whose calls have failed after ``prefix``."""
        failed = [] if self._excluded is None else self._excluded.failed(prefix)
        return failed[-1] if failed else ()

    def affords(self, model: str, spent_usd: float) -> bool:
        """Return whether the request's cap allows at least the smallest call of ``model``."""
        # The smallest call, because the real prompt is unknown until the node runs. A larger one is refused later.
        cap_usd, least = self._objective.max_cost_usd, self._least_call_usd
        return cap_usd is None or least is None or least(model) <= cap_usd - spent_usd

    def exclude_refused(self, prefix: tuple[str, ...], model: str) -> None:
        """Stop planning ``model`` after ``prefix``, because the request's cap did not allow its call."""
        self._exclusions().refuse(prefix, model)

    def exclude_failed(self, invocation: Invocation) -> None:
        """Avoid the failed call's model as long as another model can be planned after the same calls.

        If the engine may be the cause, avoid all models of this engine.
        """
        self._exclusions().fail(invocation)

    def _exclusions(self) -> ExcludedModels:
        if self._excluded is None:
            self._excluded = ExcludedModels(self._planner, self._least_call_usd)
        return self._excluded

    def _without_excluded(
        self, excluded: ExcludedModels, here: _Position, prefix: tuple[str, ...], tried: Collection[str]
    ) -> tuple[Decision, str]:
        """Return a plan whose next model is not excluded, and a note that names the models left out because they failed.

        If the bounds can only be met with a failed model, the plan may use this model, and the note is empty.
        """
        objective, node = self._objective, here["node"]
        barred = set(tried)
        if objective.max_cost_usd is not None:
            barred |= excluded.unaffordable(node, prefix, objective.max_cost_usd - here["spent_usd"])
        # Two tries at most: without all models of an engine that may be down, then without only those that failed.
        relaxed: tuple[Decision, str] | None = None
        for failed in excluded.failed(prefix):
            with suppress(InfeasibleError):
                decision = self._best(here, without=barred | failed.keys())
                note = f"left out after a failure: {', '.join(f'{model} ({kind})' for model, kind in sorted(failed.items()))}"
                if decision.is_feasible:
                    return decision, note
                relaxed = decision, note
        # If the bounds hold only with a failed model, it gets a second chance. If they hold with no model, it does not.
        decision = self._best(here, without=barred)
        return (decision, "") if decision.is_feasible or relaxed is None else relaxed


class _Position(TypedDict):
    """The keyword arguments of :meth:`Planner.plan` that describe the request's position and progress; see there."""

    node: int
    elapsed_s: float
    spent_usd: float
    load: FloatArray | None
    may_stop: bool
    stage: str | frozenset[str] | None


def _noted(note: str, more: str) -> str:
    return f"{note}; {more}" if note and more else note or more
