"""Policies that follow a plan, or plan again after each call, through a request's recorded rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from vinelm.controller import Decision, Planner
from vinelm.evaluation.off_policy.steps import Rest, Seen, Step
from vinelm.objective import Objective
from vinelm.plans.plan import Plan
from vinelm.signals import Outcome
from vinelm.template.template import stage_title
from vinelm.trie import Trie


@dataclass(frozen=True)
class TriePosition:
    """Where a request is in a trie: the node of its last call, and the stage that comes next.

    Args:
        node: The index of the node of the request's last call; 0 before its first call.
        stage: The name of the stage that comes next; None if the request has ended.
        returned: The index, among the rows so far, of the row whose answer is returned if the request ends here; -1 is
            the last row.
        has_ended: Whether no further call may follow.
    """

    node: int
    stage: str | None
    returned: int = -1
    has_ended: bool = False


Locate = Callable[[Seen], TriePosition]


def along_stages(planner: Planner, first: str | None = None, kind: str = "") -> Locate:
    """Return a function that finds a request's position in the planner's trie of paths from the results of its calls.

    Args:
        planner: A planner over the trie.
        first: The name of the application's stage that the requests begin with; None if the trie has only one first
            stage.
        kind: The type of the requests; empty if the trie does not distinguish types.
    """
    trie, template = planner.trie, planner.annotated.template.base
    first = stage_title(first or first_arm(trie), kind)

    def locate(seen: Seen) -> TriePosition:
        node = 0
        arm: str | None = first
        for row in seen:
            node = trie.child(node, row.model, arm)
            stage = template.following(row.depth, row.arm)
            arm = None if stage is None else stage_title(stage.name, kind)
        has_ended = bool(seen) and (seen[-1].ended(template.stop) or arm is None)
        return TriePosition(node, arm, has_ended=has_ended)

    return locate


def along_outcomes(planner: Planner, first: str | None = None, kind: str = "") -> Locate:
    """Return a function that finds a request's position in a trie over signals from the results of its calls.

    The position follows from each answer's outcome: the result of the check, the signal, and the earlier answer with
    which it agrees, if any. ``first`` and ``kind`` are those of :func:`along_stages`.
    """
    trie, outcomes = planner.trie, planner.annotated.outcomes
    first = stage_title(first or first_arm(trie), kind)
    stages = enumerate(planner.annotated.template.base_stages.items())
    numbers = {own: number for number, (name, own) in stages if name == stage_title(own, kind)}

    def locate(seen: Seen) -> TriePosition:
        node, arm, returned = 0, first, -1
        firsts: dict[int, int] = {}  # class in the store -> index of its first row here
        for i, row in enumerate(seen):
            if row.failure is not None:
                return TriePosition(node, None, has_ended=True)
            node = trie.child(node, row.model, arm)
            given = row.answer_class if planner.annotated.writes_answer(node) else None
            given = None if given is None else firsts.setdefault(given, i)
            shown = Outcome(row.signal, None if given is None else list(firsts.values()).index(given))
            place = outcomes.seen(node, shown, passed=bool(row.stopped), stage=numbers.get(row.arm or "")).place
            best = outcomes.returned_class(place)
            returned = -1 if best is None or best >= len(firsts) else list(firsts.values())[best]
            if place < 0 or outcomes.arm[place] < 0:
                return TriePosition(node, None, returned, has_ended=True)
            arm = trie.stages[int(outcomes.arm[place])]
        return TriePosition(node, arm, returned)

    return locate


ALONG: Mapping[str, Callable[[Planner, str | None, str], Locate]] = {"paths": along_stages, "signals": along_outcomes}
"""How a request moves through a trie, by what the plans over it depend on."""


def first_arm(trie: Trie) -> str:
    """Return the name of the stage with which all requests of the trie begin; raise ``ValueError`` if there are several
    such stages.
    """
    (first,) = trie.arms(0)
    return first


@dataclass(frozen=True, eq=False)
class ContingentSteps:
    """A policy that follows a contingent plan (next models that depend on earlier outcomes), made before the request
    and never changed.

    Args:
        plan: The plan, which begins at the trie's root.
        locate: The function that maps a request's rows to its position in the plan's trie.
    """

    plan: Plan
    locate: Locate
    _rests: dict[tuple[int, str | None], Rest] = field(default_factory=dict, init=False)

    def step(self, seen: Seen) -> Step:
        """Return the model to run after the recorded calls ``seen``, or the answer to return; see :meth:`StepPolicy.step`."""
        at = self.locate(seen)
        if at.has_ended or at.stage is None:
            return Step(None, at.returned)
        return Step(self.plan.next_model(at.node, at.stage), at.returned)

    def rest(self, seen: Seen) -> Rest:
        """Return the success, cost and latency still to expect after the calls ``seen``; see :meth:`StepPolicy.rest`."""
        at = self.locate(seen)
        where = (at.node, at.stage)
        if where not in self._rests:
            below = self._below(at)
            self._rests[where] = Rest(below.accuracy, below.cost_usd, below.expected_latency_s)
        return self._rests[where]

    def _below(self, at: TriePosition) -> Plan:
        graph = self.plan.graph
        position = int(graph.position[at.node])
        groups = graph.groups_at(position, None if at.stage is None else (at.stage,))
        first = {group: self.plan.first.get(group, int(self.plan.choice[group])) for group in groups}
        return Plan(graph, position, first, self.plan.choice)


@dataclass(frozen=True, eq=False)
class ReplannedSteps:
    """A policy that plans again after each call, with the time and cost that the request has really used.

    Args:
        objectives: The objectives, in order of preference; each plan is made for the first that can be met.
        locate: Finds a request's position in the planner's trie from the results of its calls.
    """

    planner: Planner
    objectives: tuple[Objective, ...]
    locate: Locate

    def step(self, seen: Seen) -> Step:
        """Return the model to run after the recorded calls ``seen``, or the answer to return; see :meth:`StepPolicy.step`."""
        at = self.locate(seen)
        if at.has_ended:
            return Step(None, at.returned)
        found = self._decision(seen, at)
        return Step(found.next_for(at.stage), at.returned)

    def rest(self, seen: Seen) -> Rest:
        """Return the success, cost and latency still to expect after the calls ``seen``; see :meth:`StepPolicy.rest`."""
        at = self.locate(seen)
        return Rest(*self._decision(seen, at).ahead)

    def _decision(self, seen: Seen, at: TriePosition) -> Decision:
        before = self.planner.annotated
        elapsed = float(before.latency_s[0]) + sum(row.latency_s + row.tool_latency_s for row in seen)
        spent = float(before.cost_usd[0]) + sum(row.cost_usd + row.tool_cost_usd for row in seen)
        return self.planner.plan_first(
            self.objectives, node=at.node, stage=at.stage, elapsed_s=elapsed, spent_usd=spent, may_stop=at.node > 0
        )
