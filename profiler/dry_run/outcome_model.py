"""One random guess at what the models do, for a forecast: resampled from a store's rows, or from the catalog's limits."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from vinelm.catalog import Catalog
from vinelm.profiler.execution.ledger import FIRST_PROMPT_TOKENS, PriceBound
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Template

_PRIOR = 4.0
_LOWEST_SHARE = 0.02  # without a pilot: a call costs between this share of its bound and all of it
_TOKENS_PER_S = (20.0, 200.0)  # without a pilot: how fast a model may write


class Unit(NamedTuple):
    """One simulated unit. ``requests`` are its calls with repeated attempts, ``tokens`` are prompt and completion, ``arm``
    is the stage that comes next on a template that branches.
    """

    cost_usd: float
    calls: int
    requests: int
    tokens: float
    call_s: float
    tool_s: float
    goes_on: bool
    arm: str | None = None


class OutcomeModel:
    """Probability to continue, dollars, calls, tokens and seconds by (depth, model).

    Requests of the rows are resampled whole, because the cells of one request are correlated.

    Args:
        template: a bound template.
        catalog: the models.
        rows: to resample from; may be empty.
        rng: consumed by the draws.
    """

    def __init__(self, template: Template, catalog: Catalog, rows: Sequence[Observation], rng: random.Random) -> None:
        self.template = template
        self._rng = rng
        by_request: dict[str, list[Observation]] = {}
        for row in rows:
            if not row.is_continued:  # requests that the workflow itself would have ended are no sample of the others
                by_request.setdefault(row.request_id, []).append(row)
        requests = list(by_request)
        self._seen: dict[tuple[int, str], list[Observation]] = {}
        self._of_model: dict[str, list[Observation]] = {}
        for request_id in rng.choices(requests, k=len(requests)) if requests else ():
            for row in by_request[request_id]:
                self._seen.setdefault((row.depth, row.model), []).append(row)
                self._of_model.setdefault(row.model, []).append(row)
        drawn = [row for found in self._of_model.values() for row in found]
        self._overall = self._went_on(drawn, rng.random(), 2.0)
        self._bound = PriceBound(catalog)
        self._max_tokens = {name: catalog[name].max_tokens for name in template.models}
        self._guess_usd = {name: math.exp(rng.uniform(math.log(_LOWEST_SHARE), 0.0)) for name in template.models}
        self._guess_pace = {name: rng.uniform(*_TOKENS_PER_S) for name in template.models}
        self._rates: dict[tuple[int, str], float] = {}

    def stage(self, cell: Cell, possible: Sequence[str]) -> str:
        """Return the stage of a cell's last invocation, one of those that may be."""
        return possible[0]

    def unit(self, cell: Cell, stage: str) -> Unit:
        """Draw the outcome of a cell."""
        depth, model = len(cell[1]), cell[1][-1]
        rate = self._rates.get((depth, model))
        found = self._seen.get((depth, model), [])
        if rate is None:
            rate = self._rates[depth, model] = self._went_on(found, self._overall, _PRIOR)
        goes_on = self._rng.random() < rate
        like = found or self._of_model.get(model)
        if like:
            return unit_of(like[int(self._rng.random() * len(like))], goes_on=goes_on)
        return self._guessed(stage, model, goes_on=goes_on)

    def _guessed(self, stage: str, model: str, *, goes_on: bool, arm: str | None = None) -> Unit:
        """A unit of a model that has no row yet."""
        share = self._guess_usd[model]
        tokens_out = share * self._max_tokens[model]
        cost = self._bound.usd(stage, model) * share
        call_s = tokens_out / self._guess_pace[model]
        return Unit(cost, 1, 1, FIRST_PROMPT_TOKENS * share + tokens_out, call_s, 0.0, goes_on, arm)

    def row(self, cell: Cell, unit: Unit, stage: str) -> Observation:
        """Return the drawn outcome as the observation that a sampler is given."""
        request_id, prefix = cell
        return Observation(
            request_id=request_id,
            prefix=prefix,
            stage=stage,
            success=not unit.goes_on,
            stopped=not unit.goes_on,
            cost_usd=unit.cost_usd,
            latency_s=unit.call_s,
            calls=unit.calls,
            arm=unit.arm,
        )

    def _went_on(self, rows: Sequence[Observation], prior: float, weight: float) -> float:
        went = sum(not row.ended(self.template.stop) for row in rows)
        return (went + weight * prior) / (len(rows) + weight)


def unit_of(row: Observation, *, goes_on: bool, arm: str | None = None) -> Unit:
    """Return a real row as a simulated unit."""
    tokens = (row.tokens_in or 0) + (row.tokens_out or 0)
    cost = row.cost_usd + row.tool_cost_usd
    return Unit(cost, row.calls, row.calls + row.retries, tokens, row.latency_s, row.tool_latency_s, goes_on, arm)
