"""The demo under the workflow's own check: VineLM plans over what requests show, and is really served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from vinelm.demo.first_answers import FirstAnswerRivals
from vinelm.demo.ground_truth import StepProgress
from vinelm.demo.halves import ESTIMATOR, crossed, judged, shared_objectives
from vinelm.demo.result import DemoSettings, Half, StopRuleResult
from vinelm.errors import EvidenceError
from vinelm.estimator import estimate_signals, make_estimator
from vinelm.estimator.signals.build import why_without_signals
from vinelm.evaluation import PolicyRun, SweepPolicy
from vinelm.evaluation.contingent.plans import ContingentPlans
from vinelm.evaluation.policy_plans import NAMES, PATHS
from vinelm.evaluation.policy_run import Role
from vinelm.evaluation.replay import path_policies, replayed_comparison
from vinelm.evaluation.serving import HeldOutServing
from vinelm.evaluation.session_replay import AnswerSource, SessionReplay
from vinelm.evaluation.verdicts.cross_fitting import joined_comparisons
from vinelm.evaluation.verdicts.verdict import PolicyComparison
from vinelm.objective import Objective
from vinelm.observation import Observation
from vinelm.recorded_table import RecordedTable
from vinelm.signals import Signals
from vinelm.workflow import Request


def estimated_half(
    settings: DemoSettings, judged_by: tuple[Request, ...], table: RecordedTable, rows: Sequence[Observation]
) -> Half:
    """Estimate paths and what requests show from the rows of one half, to be judged by the other.

    Args:
        settings: The demo's settings.
        judged_by: The requests of the judging half.
        table: Their outcomes, under the workflow's own check.
        rows: Rows of the other half.

    Raises:
        EvidenceError: The rows are too few to plan over what requests show.
    """
    template = settings.workflow.template.bind(tuple(settings.catalog))
    why = why_without_signals(rows, template) if rows else "no row was bought for one half of the requests"
    if why is not None:
        raise EvidenceError(f"the demo plans over what requests show, but {why}: raise --coverage or use more requests")
    annotated = make_estimator(ESTIMATOR).fit(rows, template, settings.catalog).annotated_
    annotated = replace(annotated, signals=estimate_signals(annotated, rows))
    return Half(judged=judged_by, table=table, rows=tuple(rows), annotated=annotated)


@dataclass(frozen=True, eq=False)
class OwnCheck:
    """The policies under the workflow's own check, over both halves.

    Args:
        settings: The demo's settings.
        halves: The halves, estimated with what requests show.
        answers: Where the answers of replayed requests come from.
    """

    settings: DemoSettings
    halves: Sequence[Half]
    answers: AnswerSource

    @cached_property
    def signals(self) -> Signals:
        """What the workflow declares."""
        return self.settings.workflow.signals or Signals()

    @cached_property
    def policies(self) -> dict[Role, SweepPolicy]:
        """All policies by role, replayed: VineLM by running its sessions, the others on the tables."""
        return crossed(self.halves, self._policies_of)

    def served(self, step: StepProgress) -> list[PolicyComparison]:
        """Serve every request through the LangGraph application under VineLM's plans, for each objective.

        Plans that are fixed paths are replayed on the table of all outcomes, which gives exactly what serving them gives.
        """
        objectives = shared_objectives(self.halves)
        total, done = len(objectives) * sum(len(half.judged) for half in self.halves), 0

        def count() -> None:
            nonlocal done
            done += 1
            step(done, total)

        servings = [self._serving(half) for half in self.halves]
        found = []
        for objective in objectives:
            parts = []
            for half, serving in zip(self.halves, servings, strict=True):
                replayed = replayed_comparison(half.plans, half.table, objective)
                assert replayed is not None, "each half's own bounds are as tight or tighter"
                paths = replace(replayed.vinelm, policy=PATHS)
                parts.append(replace(replayed, vinelm=serving.planned(objective, count), paths=paths))
            found.append(joined_comparisons(parts))
        return found

    def result(self, comparisons: Sequence[PolicyComparison], step: StepProgress) -> StopRuleResult:
        """Judge these comparisons, and the sweep of the budgets."""
        seed = self.settings.seed
        return judged(self.halves, self.policies, comparisons, sweeps_latency=False, on_done=step, seed=seed)

    def agreement(self, comparisons: Sequence[PolicyComparison]) -> tuple[int, int]:
        """Return (requests that VineLM served with exactly the replay's result, all requests that it served)."""
        same = total = 0
        for comparison in comparisons:
            served, again = comparison.vinelm, self.policies["vinelm"].run(comparison.objective)
            assert again is not None
            equal = (served.success == again.success) & (abs(served.cost_usd - again.cost_usd) < 1e-12)
            same, total = same + int(equal.sum()), total + len(served)
        return same, total

    def _serving(self, half: Half) -> HeldOutServing:
        return HeldOutServing(self.settings.workflow, half.plans, self.settings.backends, half.judged, by_signals=True)

    def _policies_of(self, half: Half) -> dict[Role, SweepPolicy]:
        assert half.annotated.signals is not None
        plans = ContingentPlans(half.annotated.signals)
        replay = SessionReplay(plans.planner, self.signals, self.answers)

        def run(objective: Objective) -> PolicyRun:
            return replay.run(half.judged, objective, NAMES["vinelm"], plans.plan_text(plans.decision(objective)))

        fixed = path_policies(half.plans, half.table)
        rivals = FirstAnswerRivals(half, self.signals, self.answers)
        paths = fixed["vinelm"]
        return {
            "vinelm": SweepPolicy(NAMES["vinelm"], "vinelm", run),
            "paths": SweepPolicy(PATHS, "paths", lambda objective: _renamed(paths.run(objective))),
            "static": fixed["static"],
            "single": fixed["single"],
            **rivals.policies(),
        }


def _renamed(run: PolicyRun | None) -> PolicyRun | None:
    return None if run is None else replace(run, policy=PATHS)
