"""The methods that are compared, each chosen from the same rows by the same criterion."""

from __future__ import annotations

from dataclasses import dataclass

from science.complete_tables import as_recorded_table
from science.path_rivals import BestSingle, Method, MixedSingle, PathOnly, StaticPlan
from science.replay import oracle
from science.scored_cascade import ScoredCascade
from signals_parts.buying import catalog_of, template_of
from signals_parts.record import Asked
from signals_parts.routers import KindTable, KnnRouter
from signals_parts.vinelm_kinds import VineLMKinds
from signals_parts.vinelm_signals import VineLMSignals

from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.rivals import PolicyResult, UntilTwoAgree, VoteOfK
from vinelm.objective import Objective

ORACLE = "oracle"
TITLES = {
    "vinelm": "VineLM",
    "path_only": "paths only",
    "static": "static plan",
    "single": "one model",
    "mixed_single": "two mixed",
    "vote": "vote of k",
    "two_agree": "two agree",
    "scored_cascade": "scorer",
    "kind_table": "by kind",
    "knn": "nearest",
    "vinelm_kinds": "with kinds",
    ORACLE: "oracle",
}
"""Name of each method in the tables, by its key."""
REFERENCES = ("static", "path_only", "mixed_single")
"""Every method is compared with these."""


def methods(depth: int, asked: Asked, request_ids: tuple[str, ...]) -> tuple[Method, ...]:
    """All methods but the oracle.

    Args:
        depth: most calls; where one is all, whatever compares several answers is left out.
        asked: what is known before the first call; rivals that need what is not there are left out.
        request_ids: all requests that rows may be bought of.
    """
    found: list[Method] = [VineLMSignals(), PathOnly(), StaticPlan(), BestSingle(), MixedSingle()]
    if depth > 1:
        found += [VoteOfK(), UntilTwoAgree(), ScoredCascade()]
    if asked.kinds:
        found.append(KindTable(asked))
    if len(set(asked.kinds.values())) > 1:
        found.append(VineLMKinds(asked, request_ids))
    if asked.texts:
        found.append(KnnRouter(asked))
    return tuple(found)


@dataclass(frozen=True)
class Oracle:
    """Knows which systems are right on these requests: no policy over them does better."""

    max_cost_usd: float

    def run(self, table: OutcomeTable) -> PolicyResult:
        """One call for each request, of the cheapest system that is right where the budget has room."""
        catalog = catalog_of(table)
        exact = as_recorded_table(table, template_of(1), catalog)
        found = oracle(exact, Objective(maximize="accuracy", max_cost_usd=self.max_cost_usd))
        return PolicyResult(found.success.astype(float), found.cost_usd)
