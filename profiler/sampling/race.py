"""Compares single models: all answer the same requests, twice as many in each round. Clearly worse models drop out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from vinelm.catalog import Catalog
from vinelm.profiler.sampling.limits import ProfileLimits
from vinelm.profiler.sampling.prices import Prices, listed_usd, rows_by_cell
from vinelm.profiler.sampling.runs import Run, run_of, whole_path
from vinelm.profiler.sampling.single_models import (
    SingleModel,
    SingleModels,
    beta_interval,
    is_apart,
    without_losers,
)
from vinelm.requests.protocols import RequestPath
from vinelm.rows.observation import Cell, Observation
from vinelm.template import SKIP, Template

REQUESTS = (1, 2, 4, 8, 16, 30)
"""How many requests the remaining models have answered after each round. The first round has one: if dollars have a heavy tail,
two hard requests may cost more than the race."""
FEW_REQUESTS = (8, 30)
"""The same if a round takes hours."""
PILOT = 2
"""How many requests one racer answers alone before all others, to find the scale of the list prices."""
SHARE = 0.25
"""The largest share of a profile's dollars that the race takes."""
TIMES_TODAY = 2.0
"""If a coverage ends the profile and the current setup is known, the race may cost at least this many times the dollars of the
current setup's runs on all its requests, which come first: a small coverage must not cut off the comparison with the current
setup."""

Rows = Mapping[Cell, Observation]
Choices = Sequence[tuple[str, ...] | Mapping[str, tuple[str, ...]]]


class Racer(NamedTuple):
    """A participant of the comparison of single models: one model, or the current setup (``is_current``).

    ``run`` has the model of each call of a whole request.
    """

    name: str
    run: Run
    is_current: bool = False


@dataclass(frozen=True)
class ModelRace:
    """Plans the comparison of single models. Its methods are pure functions of the results, so that a resumed run plans the
    same.

    Args:
        template: A template bound to the catalog's models.
        catalog: The models with list prices; None if unknown.
        order: The requests, in the order in which they are run.
        choices: The possible models of each call.
        limits: The profile's limits.
        requests: The number of requests that the remaining models have answered after each round, increasing.
    """

    template: Template
    catalog: Catalog | None
    order: Sequence[str]
    choices: Choices
    limits: ProfileLimits
    requests: Sequence[int] = REQUESTS

    def racers(self) -> list[Racer]:
        """Return the participants: the current setup first, then every single model by list price.

        Each single model runs in every stage that allows it. In other stages, the current model runs, or the cheapest allowed
        one.
        """
        template, today = self.template, self.template.today
        names = sorted((name for name in template.models if name != SKIP), key=lambda name: listed_usd(self.catalog, name))
        current = None if today is None else whole_path(template, today)
        found: list[Racer] = []
        for name in names:
            models = {stage.name: self._model(stage.models or (), name, stage.name) for stage in template.stages}
            run = whole_path(template, models)
            if run not in [racer.run for racer in found]:
                found.append(Racer(name, run, run == current))
        if today is not None and current is not None and not any(racer.is_current for racer in found):
            found.append(Racer(" > ".join(dict.fromkeys(today.values())), current, True))
        return sorted(found, key=lambda racer: not racer.is_current)

    def _model(self, allowed: Sequence[str], name: str, stage: str) -> str:
        if name in allowed:
            return name
        today = (self.template.today or {}).get(stage)
        real = [model for model in allowed if model != SKIP] or list(allowed)
        return today if today is not None else min(real, key=lambda model: listed_usd(self.catalog, model))

    def paths(self, round_: int, observations: Sequence[Observation]) -> list[RequestPath]:
        """Return the paths of a round of the comparison; empty once the comparison is over.

        The earlier rounds are planned again, each from the results known then, so that results bought after the comparison
        change nothing.

        Args:
            round_: The number of the round, from 0.
            observations: The results of all earlier rounds.
        """
        every, known = rows_by_cell(observations), dict[Cell, Observation]()
        for earlier in range(round_):
            paths = self._next(earlier, known)
            if not paths:
                return []
            for path in paths:
                rows, _ = run_of(every, self.template, path.request_id, path.path)
                known.update(rows_by_cell(rows))
        return self._next(round_, known)

    def asking(self, round_: int, request_id: str, run: Run) -> str:
        """Return a short text for a path of a round: its model, and the position of its request.

        For example, ``gpt-5-mini 12 of 30`` is the path of the 12th of 30 requests.
        """
        name = next((racer.name for racer in self.racers() if racer.run == run), "")
        asked = self.requests[min(round_, len(self.requests)) - 1] if round_ else PILOT
        return f"{name} {self.order.index(request_id) + 1} of {min(asked, len(self.order))}"

    def table(self, observations: Sequence[Observation]) -> SingleModels:
        """Return the accuracy and cost of each single model and of the current setup, computed from the given results."""
        # Sums in one fixed order, whatever the order in which the rows were written.
        rows = sorted(observations, key=lambda row: (row.request_id, row.prefix))
        prices = Prices.of(self.template, self.catalog, rows)
        models = self._models(rows_by_cell(rows), prices, self.order)
        kept = {one.name for one in without_losers(models)}
        told = tuple(replace(one, is_out=one.name not in kept) for one in models)
        return SingleModels(models=told, spent_usd=sum(row.served_usd for row in rows))

    def _next(self, round_: int, known: Rows) -> list[RequestPath]:
        """Return the paths of a round, as far as the comparison's budget allows: request by request, the current setup first.

        The other models follow, from cheap to expensive. ``known`` are the results of earlier rounds, by request and models.
        """
        if round_ > len(self.requests):
            return []
        rows = list(known.values())
        prices = Prices.of(self.template, self.catalog, rows)
        models = self._models(known, prices, self.order[: self.requests[-1]])
        if len(models) < 2 or (round_ and is_apart(models)):
            return []
        left_in = sorted(without_losers(models), key=lambda one: not one.is_current)  # the current setup, then the cheap ones
        racing = [one.run for one in left_in]
        if round_ == 0:  # alone: its rows show the scale of the list prices
            racing = racing[:1]
        left = self._usd(prices, rows) - prices.spent(rows, self.catalog)
        kept = self._kept_for_today(known, prices)
        found = []
        for request in self.order[: self.requests[round_ - 1] if round_ else PILOT]:
            for run in racing:
                paid, is_whole = run_of(known, self.template, request, run)
                usd = 0.0 if is_whole else prices.of_run(run, len(paid))
                is_today = run is racing[0] and left_in[0].is_current
                # The first runs of all models are always bought: without them no price is known.
                if is_whole or (usd > left - (0.0 if is_today else kept) and round_):
                    continue
                left -= usd
                kept -= min(usd, kept) if is_today else 0.0
                found.append(RequestPath(request, run))
        return found

    def _usd(self, prices: Prices, rows: Sequence[Observation]) -> float:
        """Return the budget of the comparison in dollars."""
        usd = SHARE * self.limits.usd(prices, prices.everything(self.choices, len(self.order)), rows)
        if self.template.today is None or self.limits.coverage is None:
            return usd
        least = TIMES_TODAY * self._today_usd(prices) * min(self.requests[-1], len(self.order))
        without = replace(self.limits, coverage=None)
        return max(usd, min(least, SHARE * without.usd(prices, prices.everything(self.choices, len(self.order)), rows)))

    def _kept_for_today(self, known: Rows, prices: Prices) -> float:
        """Return the expected cost in dollars of the current setup's runs that are still missing.

        Other models must leave this amount, or else a coverage limit might end the profile before these runs. The result is 0
        if the current setup is unknown, if there is no coverage limit, or if there is a budget in dollars.
        """
        if self.template.today is None or self.limits.coverage is None or self.limits.budget_usd is not None:
            return 0.0
        run = whole_path(self.template, self.template.today)
        has = sum(run_of(known, self.template, request, run)[1] for request in self.order[: self.requests[-1]])
        return self._today_usd(prices) * (min(self.requests[-1], len(self.order)) - has)

    def _today_usd(self, prices: Prices) -> float:
        return prices.of_run(whole_path(self.template, self.template.today or {}))

    def _models(self, rows: Rows, prices: Prices, requests: Sequence[str]) -> list[SingleModel]:
        """Return the accuracy and cost of each single model and of the current setup on these requests, cheapest first."""
        found = []
        for racer in self.racers():
            runs = [run_of(rows, self.template, request, racer.run) for request in requests]
            whole = [run for run, is_whole in runs if is_whole and run]
            right = float(sum(run[-1].success or 0.0 for run in whole))
            expected = 0.0 if prices.is_free else prices.of_run(racer.run)
            usd = sum(row.served_usd for run in whole for row in run) / len(whole) if whole else expected
            low, high = beta_interval(right, len(whole))
            found.append(SingleModel(
                name=racer.name, run=racer.run, is_current=racer.is_current, requests=len(whole), right=right,
                low=low, high=high, usd_per_1000=1000.0 * usd,
            ))  # fmt: skip
        return sorted(found, key=lambda one: one.usd_per_1000)
