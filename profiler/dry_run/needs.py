"""What a profile needs to reach its coverage, beside what is left of the budget, the requests and the rows. Pure."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from vinelm.profiler.dry_run.forecast import Forecast, ForecastInterval
from vinelm.profiler.execution.ledger import ProfileLimits
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie import Trie


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a run needs if no budget stops it, and what there is. The intervals are those of the forecast.

    Attributes:
        coverage: the coverage at which the run ends, in (0, 1].
        cost_usd: dollars needed, those of earlier runs not included.
        calls: model calls needed.
        requests: requests on which rows are bought.
        rows: rows that are bought.
        left_usd: dollars left of the budget; None without one.
        left_calls: calls left of the budget; None without one.
        left_requests: requests to sample from.
        left_rows: the most rows that could be bought: one for each request and sequence of models that has none.
    """

    coverage: float
    cost_usd: ForecastInterval
    calls: ForecastInterval
    requests: ForecastInterval
    rows: ForecastInterval
    left_usd: float | None
    left_calls: int | None
    left_requests: int
    left_rows: int

    @property
    def short_usd(self) -> float:
        """The dollars that the budget lacks at the high end of the forecast; 0 without a budget."""
        return 0.0 if self.left_usd is None else max(self.cost_usd.high - self.left_usd, 0.0)


def needs_of(
    forecast: Forecast,
    limits: ProfileLimits,
    template: Template,
    n_requests: int,
    *,
    coverage: float,
    rows: Sequence[Observation] = (),
    committed_usd: float = 0.0,
) -> Needs:
    """Compare the forecast of a run without budgets with what the budgets leave.

    Args:
        forecast: of the run to ``coverage``, without budgets.
        limits: the budgets of the run that is planned.
        template: a bound template.
        n_requests: the number of requests to sample from.
        coverage: where the forecast run ends.
        rows: the store's.
        committed_usd: dollars that count on the store's ledger.
    """
    budget_usd, budget_calls = limits.budget_usd, limits.budget_calls
    made = sum(row.calls for row in rows)
    return Needs(
        coverage=coverage,
        cost_usd=forecast.cost_usd,
        calls=forecast.all_calls,
        requests=forecast.requests,
        rows=forecast.cells,
        left_usd=None if budget_usd is None else max(budget_usd - committed_usd, 0.0),
        left_calls=None if budget_calls is None else max(budget_calls - made, 0),
        left_requests=n_requests,
        left_rows=max(n_requests * _prefixes(template) - len(rows), 0),
    )


def _prefixes(template: Template) -> int:
    """The number of sequences of models that the template allows, shorter ones included."""
    if template.is_linear:  # a long loop allows more than a trie could hold
        return sum(accumulate((len(stage.models or ()) for stage in template.invocations), operator.mul))
    return Trie.from_template(template).n_nodes
