"""Plans over merged tries in the words of other contingent plans: what runs next, and what the plan is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from vinelm.controller.planning.contingent.decision import ContingentDecision, Option, explained
from vinelm.controller.planning.contingent.plan import ContingentPlan
from vinelm.controller.planning.merged.evaluation import Outlook, evaluate
from vinelm.controller.planning.merged.graph import Ints, MergedGraph
from vinelm.controller.planning.metric import COST_CAP, FLOOR, LATENCY_CAP


@dataclass(frozen=True, eq=False)
class MergedPlan(ContingentPlan):
    """A contingent plan over a merged trie. Its figures from the root on are those of the requests that follow it.

    Where a bound holds for each request, what the plan does at a node also depends on the time and dollars left: ``choice`` has
    what it does for a request whose invocations take and cost what they do on average.

    Args:
        merged: The graph with the rates by difficulty.
    """

    merged: MergedGraph

    @cached_property
    def outlook(self) -> Outlook:
        """The plan's own requests, from its start on; elsewhere than at the root their mix is that of the profile."""
        known = self.merged.annotated.difficulty
        mix = None if known is None or self.start else known.weight
        return evaluate(self.merged, self._all_choices, node=self.start, mix=mix)

    @property
    def accuracy(self) -> float:
        """Expected accuracy."""
        return self.outlook.accuracy if self.start == 0 else super().accuracy

    @property
    def promised_accuracy(self) -> float:
        """Expected accuracy if the requests at every node were those of the profile: what the plan was first chosen by."""
        return super().accuracy

    @property
    def cost_usd(self) -> float:
        """Expected dollars from the start on; from the root with what runs before the first invocation."""
        if self.start:
            return super().cost_usd
        return self.outlook.cost_usd + float(self.merged.annotated.cost_usd[0])

    @property
    def standard_error(self) -> float | None:
        """An upper bound on the standard error of :attr:`accuracy` (:class:`Outlook`); None without errors in the trie."""
        return self.outlook.standard_error

    @cached_property
    def _all_choices(self) -> Ints:
        choice = np.asarray(self.choice, np.int64).copy()
        for arm in self.merged.arms_of(self.start):
            choice[arm] = self.first.get(arm, -1)
        return choice

    def lines(self, limit: int | None = None) -> list[str]:
        """Return the plan as text: along a loop of one stage a line for each run of one model, else an indented tree."""
        if not self.merged.trie.is_linear:
            return super().lines(limit)
        steps, node, edge = [], self.start, next(iter(self.first.values()))
        while edge >= 0:
            node = int(self.graph.target[edge])
            steps.append((self.merged.trie.stages[self.merged.trie.stage[node]], self._model(edge)))
            arms = self.merged.arms_of(node)
            edge = int(self.choice[arms[0]]) if arms else -1
        found, at = [], int(self.merged.trie.depth[self.start])
        for (stage, model), run in groupby(steps):
            n = len(list(run))
            turns = f"{at + 1}" if n == 1 else f"{at + 1}-{at + n}"
            found.append(f"{turns:>7}  {stage}: {model}")
            at += n
        found.append(f"{at + 1:>7}  end" if found else "end")
        return found if limit is None or len(found) <= limit else [*found[: max(limit - 1, 0)], "..."]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan and its figures as plain JSON types, with the accuracy for the profile's mix of requests."""
        return super().to_dict() | {"promised_accuracy": self.promised_accuracy}


@dataclass
class MergedDecision(ContingentDecision):
    """A decision over a merged trie.

    Attributes:
        left: What was left of each bound that holds for each request, in seconds or dollars, before this decision.
        worths: Of each arm, what each model leads to: (model or None to end, accuracy, dollars) given that the arm comes.
    """

    left: Mapping[str, float] = field(compare=False, repr=False, default_factory=dict)
    worths: Mapping[int, list[tuple[str | None, float, float]]] = field(compare=False, repr=False, default_factory=dict)

    @property
    def path(self) -> tuple[str, ...]:
        """No models: several histories lead to ``node``."""
        return ()

    @cached_property
    def slack(self) -> dict[str, float]:
        """What each bound leaves unused; those on averages from the root on only. Negative if it is violated."""
        objective, found = self.request.objective, {}
        if self.node == 0 and objective.min_accuracy is not None:
            found[FLOOR] = self.accuracy - objective.min_accuracy
        if LATENCY_CAP in self.left:
            root_s = float(self.metrics.annotated.latency_s[0]) if self.node == 0 else 0.0
            found[LATENCY_CAP] = self.left[LATENCY_CAP] - (self.plan.latency_s - root_s)
        if COST_CAP in self.left:
            found[COST_CAP] = self.left[COST_CAP] - self._dearest
        elif self.node == 0 and objective.max_cost_usd is not None:
            found[COST_CAP] = objective.max_cost_usd - self.plan.cost_usd
        return found

    @property
    def _dearest(self) -> float:
        """Expected dollars of a request that goes all the way."""
        assert isinstance(self.plan, MergedPlan)
        graph, usd = self.plan.merged, self.metrics.annotated.cost_usd
        return evaluate(graph, self.plan._all_choices, node=self.node, latency_s=usd[graph.trie.target]).latency_s

    def alternatives(self) -> list[Option]:
        """Return what may come next in each arm, each with the best plan that the same goal allows; seconds are not known."""
        names = self.metrics.trie.stages
        found: list[Option] = []
        for arm, worths in self.worths.items():
            stage = names[self.plan.graph.stage[arm]]
            chosen = self.plan.next_model(self.node, stage)
            found += explained(
                [Option(stage, model, right, usd, float("nan"), 0.0, model == chosen) for model, right, usd in worths]
            )
        return found
