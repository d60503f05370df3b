"""VineLM with the kinds of request declared, as one of the methods that are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from science.path_rivals import Chooser
from signals_parts.curves import PromisedChoice
from signals_parts.record import Asked
from signals_parts.vinelm_signals import VineLMSignals

from vinelm.controller import Planner
from vinelm.controller.planning.contingent.decision import ContingentDecision
from vinelm.estimator import ObservationTable, estimate_signals, make_estimator
from vinelm.estimator.arms import with_kinds_counted
from vinelm.estimator.validation.checks import validate_estimate
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.rivals import Evidence, PolicyChoice, PolicyResult
from vinelm.evaluation.tries.promises import promised_gain
from vinelm.objective import Objective
from vinelm.rows.kinds import titled
from vinelm.rows.observation import Observation
from vinelm.template.kinds import of_kinds
from vinelm.template.template import learnt_kind, stage_title
from vinelm.traces.store.kinds import learnt
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie


@dataclass(frozen=True, eq=False)
class KindPolicy:
    """Serves each request by the plan of its kind, until an answer passes the check."""

    decision: ContingentDecision
    asked: Asked

    def run(self, table: OutcomeTable) -> PolicyResult:
        """See :meth:`AnswerPolicy.run`."""
        template = self.decision.plan.graph.annotated.template
        kinds = np.array([learnt_kind(self.asked.kinds.get(name), template.kinds) for name in table.request_ids])
        success, cost = np.zeros(len(table)), np.zeros(len(table))
        for kind in np.unique(kinds):
            self._follow(table, np.flatnonzero(kinds == kind), str(kind), success, cost)
        return PolicyResult(success, cost)

    def _follow(
        self, table: OutcomeTable, rows: npt.NDArray[np.intp], kind: str, success: npt.NDArray[np.float64],
        cost: npt.NDArray[np.float64],
    ) -> None:  # fmt: skip
        annotated, node = self.decision.plan.graph.annotated, 0
        arm: str | None = next(name for name in annotated.trie.arms(0) if name.endswith(stage_title("", kind)))
        while arm is not None and len(rows) and (model := self.decision.plan.next_model(node, arm)) is not None:
            m, node = table.column[model], annotated.trie.child(node, model, arm)
            cost[rows] += table.cost_usd[rows, m]
            success[rows] = table.success[rows, m]
            rows = rows[~table.passed[rows, m]]
            arm = next(iter(annotated.trie.arms(node)), None)


@dataclass(frozen=True, eq=False)
class KindChooser:
    """The chooser of :class:`VineLMKinds`."""

    planner: Planner
    asked: Asked

    def choose(self, max_cost_usd: float) -> PolicyChoice:
        """See :meth:`Chooser.choose`."""
        decision = self.planner.plan(Objective(maximize="accuracy", max_cost_usd=max_cost_usd))
        assert isinstance(decision, ContingentDecision)
        return PromisedChoice(
            policy=KindPolicy(decision, self.asked),
            promise=decision.promise,
            promised_accuracy=decision.promise.accuracy,
            promised_cost_usd=decision.path_cost_usd,
            words=decision.words,
        )


@dataclass(frozen=True)
class VineLMKinds:
    """VineLM's plan by the kind of the request, over paths; without them where none can be learnt, or they do not pay.

    That is what `vinelm estimate` does.

    Args:
        asked: the kinds.
        request_ids: all requests that a profile may buy rows of: they say how frequent each kind is.
    """

    asked: Asked
    request_ids: tuple[str, ...]
    name: str = "vinelm_kinds"

    def fit(self, evidence: Evidence) -> Chooser:
        """See :meth:`Method.fit`."""
        found = estimated_by_kind(evidence.rows, evidence.estimate, self.asked, self.request_ids)
        return KindChooser(Planner(found), self.asked) if found.template.kinds else VineLMSignals().fit(evidence)


def estimated_by_kind(
    rows: Sequence[Observation], plain: AnnotatedTrie, asked: Asked, request_ids: Sequence[str]
) -> AnnotatedTrie:
    """The trie of a template of kinds, where the one without kinds is checked; that one where kinds do not pay."""
    kinds = learnt(rows, asked.kinds, plain.template)
    base = plain.template
    template = of_kinds(base, kinds)
    if not kinds:
        return plain
    own = [titled(row, learnt_kind(asked.kinds.get(row.request_id), kinds), base) for row in rows]
    counts = Counter(learnt_kind(asked.kinds.get(name), kinds) for name in request_ids)
    found = with_kinds_counted(make_estimator("latent").fit(own, template, plain.catalog).annotated_, counts)
    if "evidence" not in plain.meta:
        return found
    cells = ObservationTable.from_observations(own, template, Trie.from_template(template))
    evidence = validate_estimate(cells, template, plain.catalog, found).to_dict()
    found = replace(found, meta={**found.meta, "evidence": evidence})
    return found if promised_gain(found, replace(plain, signals=estimate_signals(plain, rows))) > 0.0 else plain
