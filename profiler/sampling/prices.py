"""Estimates from the results so far what calls cost and how often requests continue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vinelm.catalog import Catalog
from vinelm.requests.protocols import Choice
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Template

NOMINAL_TOKENS = (1000, 250)
"""Prompt and completion tokens of the call by which list prices are compared."""
_RATE_PRIOR = 4.0
"""The weight, in rows, of the rate at which requests continue over all models."""


@dataclass(frozen=True)
class Prices:
    """The expected cost of calls and runs in dollars, estimated from some results.

    Attributes:
        usd: The cost of a call on each model in dollars, >= 0; all 1 if every model is free, so that calls are counted instead.
        goes_on: The probability that a request continues after a call on the model, in (0, 1).
        is_free: Whether every model is free.
    """

    usd: Mapping[str, float]
    goes_on: Mapping[str, float]
    is_free: bool

    @classmethod
    def of(cls, template: Template, catalog: Catalog | None, rows: Sequence[Observation]) -> Prices:
        """Return prices estimated from the results ``rows``.

        The price of a model without results is its list price, multiplied by the ratio of real costs to list prices of the
        other models.
        """
        usd = prices_usd(template, catalog, rows)
        is_free = not any(price > 0.0 for price in usd.values())
        counts = {name: [0, 0] for name in usd}
        for row in rows:
            # Rows after an answer that passed, and rows of the last invocation, do not show how often requests continue.
            if row.model in counts and not row.is_continued and row.depth < template.depth:
                counts[row.model][0] += 1
                counts[row.model][1] += not row.ended(template.stop)
        n, on = (sum(count[k] for count in counts.values()) for k in (0, 1))
        overall = (on + 1.0) / (n + 2.0)
        rates = {name: (on + _RATE_PRIOR * overall) / (n + _RATE_PRIOR) for name, (n, on) in counts.items()}
        return cls(dict.fromkeys(usd, 1.0) if is_free else usd, rates, is_free)

    def of_run(self, path: Sequence[Choice], n_paid: int = 0, *, goes_on: bool = False) -> float:
        """Return the expected cost in dollars of the calls of a path after its first ``n_paid`` calls.

        It is assumed that the request continues after these calls.

        Args:
            path: The model of each call of the path. If a call has a model for each possible stage, the mean of their costs
                counts.
            n_paid: The number of the path's calls that have results.
            goes_on: Whether the path continues after an answer that passed the workflow's own check.
        """
        total, chance = 0.0, 1.0
        for choice in path[n_paid:]:
            names = (choice,) if isinstance(choice, str) else tuple(choice.values()) or ("",)
            total += chance * sum(self.usd.get(name, 0.0) for name in names) / len(names)
            chance *= 1.0 if goes_on else sum(self.goes_on.get(name, 1.0) for name in names) / len(names)
        return total

    def everything(self, choices: Sequence[tuple[str, ...] | Mapping[str, tuple[str, ...]]], n_requests: int) -> float:
        """Return the approximate cost of a full profile, in the unit of :attr:`usd`.

        A full profile makes every call that a request can reach, each of them once.

        Args:
            choices: The possible models of each call; by stage name, if the stages of a call have different models.
            n_requests: The number of requests.
        """
        below = 0.0
        for models in reversed(choices):
            stages = (models,) if isinstance(models, tuple) else tuple(models.values())
            below = sum(self.usd[name] + self.goes_on[name] * below for names in stages for name in names) / max(len(stages), 1)
        return n_requests * below

    def spent(self, rows: Sequence[Observation], catalog: Catalog | None) -> float:
        """Return the total cost of results in dollars; if all models are free, return the number of results."""
        return float(len(rows)) if self.is_free else sum(fresh_usd(row, catalog) for row in rows)


def listed_usd(catalog: Catalog | None, model: str) -> float:
    """Return the dollars that a call of :data:`NOMINAL_TOKENS` costs at a model's list price; 0 without a catalog."""
    return 0.0 if catalog is None else catalog[model].price.cost_usd(*NOMINAL_TOKENS)


def prices_usd(template: Template, catalog: Catalog | None, observations: Iterable[Observation]) -> dict[str, float]:
    """Return the cost of a call on each model in dollars: the mean over its results, or without results its scaled list price.

    The scale, common to all models, is the ratio of the cost of all results to the list prices of their models. If no model has
    results, the prices are list prices. Savings by prompt caching are ignored, so that a profile buys the same results whatever
    prompts are cached.
    """
    paid: dict[str, list[float]] = {name: [] for name in template.models}
    for row in observations:
        if row.model in paid:
            paid[row.model].append(fresh_usd(row, catalog))
    listed = {name: listed_usd(catalog, name) for name in paid}
    expected = sum(listed[name] * len(costs) for name, costs in paid.items())
    scale = sum(map(sum, paid.values())) / expected if expected > 0.0 else 1.0
    return {name: sum(costs) / len(costs) if costs else scale * listed[name] for name, costs in paid.items()}


def fresh_usd(row: Observation, catalog: Catalog | None) -> float:
    """Return the cost of a result in dollars, including tools, as if no prompt were cached."""
    if catalog is None or row.model not in catalog or not (row.calls and row.tokens_in) or row.tokens_out is None:
        return row.served_usd
    model, calls = catalog[row.model], row.calls
    if not row.tokens_cached and model.cache_points == "off":
        return row.served_usd
    return calls * model.price.cost_usd(row.tokens_in // calls, row.tokens_out // calls) + row.tool_cost_usd


def rows_by_cell(rows: Iterable[Observation]) -> dict[Cell, Observation]:
    """Return the results, keyed by (request id, models of the path)."""
    return {(row.request_id, row.prefix): row for row in rows}
