"""The result of an evaluation: the verdict, and the figures of each policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vinelm.evaluation.comparison.cross_fit import CrossFit
from vinelm.evaluation.comparison.judged_policy import JudgedPolicy
from vinelm.evaluation.off_policy.intervals import OffPolicyEstimate
from vinelm.objective import Objective
from vinelm.template import StopRule
from vinelm.template.stop_rules import STOP_RULES
from vinelm.trie.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The verdict on one workflow, and the figures of every policy.

    Attributes:
        verdict: Whether to switch to a plan. Every command gives the same verdict; see
            :class:`~vinelm.trie.verdict.Verdict`.
        objectives: The planned objectives: one, or the budgets of a sweep, whose results are averaged.
        policies: The policies, VineLM first.
        requests: Number of requests that plans were tested on.
        rows: Number of recorded results of these requests; 0 if the policies served requests.
        spent_usd: Dollars spent on the recorded results, or on serving.
        is_served: Whether the policies were really served; else the figures are off-policy estimates.
        is_complete: Whether serving finished within its budget.
        is_simulated: Whether some models are simulated.
        stop: The rule that ended the requests. The rule ``oracle`` ends a request at its first right answer, which no
            service can know, so figures under it are upper limits, not advice.
        notes: Caveats about the figures, one sentence each.
        level: Confidence level of every interval.
        by_budget: In a sweep, one evaluation for each budget; empty otherwise. With 95 % confidence, all their
            intervals hold at the same time.
        kinds: How much more accurate plans are that distinguish request types, at the same cost, as a paired gain; None
            if no types are declared.
        fit: The parts of the requests and the tries that chose their plans, for a report of the same store; None if
            requests were served.
    """

    verdict: Verdict
    objectives: tuple[Objective, ...]
    policies: tuple[JudgedPolicy, ...]
    requests: int
    rows: int
    spent_usd: float
    is_served: bool = False
    is_complete: bool = True
    is_simulated: bool = False
    stop: StopRule = "workflow"
    notes: tuple[str, ...] = ()
    level: float = 0.95
    by_budget: tuple[Evaluation, ...] = ()
    kinds: OffPolicyEstimate | None = None
    fit: CrossFit | None = field(default=None, repr=False, compare=False)

    def policy(self, name: str) -> JudgedPolicy | None:
        """Return the policy with that name; None if it does not exist."""
        return next((one for one in self.policies if one.name == name), None)

    @property
    def target(self) -> str:
        """The quantity to improve: ``accuracy``, ``cost`` or ``latency``."""
        return self.objectives[0].target

    @property
    def headline(self) -> JudgedPolicy:
        """The figures to report for VineLM: those of its plans over signals if the recorded results suffice to test
        them, else those of its plans over paths.
        """
        return next(filter(self._is_identified, self._own), self._own[-1])

    @property
    def _own(self) -> list[JudgedPolicy]:
        """VineLM's policies: over signals, then over paths, as far as they exist."""
        return [one for name in ("signals", "paths") if (one := self.policy(name)) is not None]

    def not_identified(self) -> tuple[JudgedPolicy, ...]:
        """Return VineLM's policies whose results and gains cannot be computed from the recorded results alone.

        To measure these policies, requests would have to be served with them. Empty if the policies were served, or if
        no service could use the stop rule.
        """
        is_known = self.is_served or STOP_RULES[self.stop].why_not_served
        return () if is_known else tuple(one for one in self._own if not self._is_identified(one))

    @staticmethod
    def _is_identified(policy: JudgedPolicy) -> bool:
        return policy.accuracy.is_identified and all(one.is_identified for one in policy.against.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as plain JSON types."""
        facts = ("requests", "rows", "spent_usd", "is_served", "is_complete", "is_simulated", "stop")
        return {
            **{name: getattr(self, name) for name in facts},
            "verdict": self.verdict.to_dict(),
            "objectives": [one.to_dict() for one in self.objectives],
            "target": self.target,
            "headline": self.headline.name,
            "policies": [one.to_dict() for one in self.policies],
            "not_identified": [one.name for one in self.not_identified()],
            "notes": list(self.notes),
            "level": self.level,
            "by_budget": [
                {
                    "objective": one.objectives[0].to_dict(),
                    "level": one.level,
                    "policies": [of.to_dict() for of in one.policies],
                }
                for one in self.by_budget
            ],
            "kinds": None if self.kinds is None else self.kinds.to_dict(),
        }
