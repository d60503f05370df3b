"""The table of single models: accuracy and cost if a single model makes every call, from a profile's results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vinelm.profiler.sampling.mixtures import chances_to_be_strongest
from vinelm.profiler.sampling.runs import Run

LEVEL = 0.9
"""The level of the intervals."""
LEAST_REQUESTS = 10
"""A model with fewer requests is not considered as good as another one."""
LEAST_NAMED = 4
"""A model with fewer requests is not named the strongest."""
NEAR = 0.03
"""A model is good if it is at most this far below the strongest one; a fraction."""


@dataclass(frozen=True, kw_only=True)
class SingleModel:
    """Accuracy and cost of one model used for every call.

    Attributes:
        name: The model's name; for a current setup of several models, the names joined by `` > ``.
        run: The model of each call of a whole run.
        is_current: Whether it is the current setup.
        requests: The number of requests with a whole run of this model.
        right: The number of right answers; for scores, their sum.
        low, high: 90 % interval of the accuracy (Beta, Jeffreys' prior), as fractions.
        usd_per_1000: Cost in dollars per 1,000 requests, from its runs; without runs, from its list price, multiplied by the
            ratio of real costs to list prices of the other models.
        is_out: Whether the model has left the comparison, because the whole accuracy interval of a cheaper model lies above the
            interval of this model.
    """

    name: str
    run: Run
    is_current: bool
    requests: int
    right: float
    low: float
    high: float
    usd_per_1000: float
    is_out: bool = False

    @property
    def accuracy(self) -> float | None:
        """The share of requests that the model answered right; None without requests."""
        return self.right / self.requests if self.requests else None


@dataclass(frozen=True, kw_only=True)
class SingleModels:
    """The single models of a profile, and the current setup, cheapest first.

    Attributes:
        models: The models.
        spent_usd: The cost of the results so far, in dollars.
        counted: The word for a good answer in messages, such as ``right``.
    """

    models: tuple[SingleModel, ...]
    spent_usd: float
    counted: str = "right"

    @property
    def strongest(self) -> SingleModel | None:
        """The model with the highest probability of being the most accurate; None without results.

        Expensive models, often the strongest, have few results in a small profile. A comparison of shrunken means would
        therefore choose them too rarely. A model with fewer than four requests is never chosen if another model has more,
        because three right answers out of three prove little.
        """
        least = min(LEAST_NAMED, max((one.requests for one in self.models), default=0))
        known = [one for one in self.models if one.requests and one.requests >= least]
        if not known:
            return None
        return known[int(chances_to_be_strongest([one.right for one in known], [one.requests for one in known]).argmax())]

    @property
    def cheapest_good(self) -> SingleModel | None:
        """The cheapest model whose accuracy is at most :data:`NEAR` below that of the strongest model; None if there is none.

        Only models with at least :data:`LEAST_REQUESTS` requests count.
        """
        best = self.strongest
        if best is None or best.accuracy is None:
            return None
        floor = best.accuracy - NEAR
        good = (one for one in self.models if one.requests >= LEAST_REQUESTS and (one.accuracy or 0.0) >= floor)
        return next(good, None)

    @property
    def without_rows(self) -> tuple[SingleModel, ...]:
        """The models that were not run at all, because one run would have cost more than was left for the comparison."""
        return tuple(one for one in self.models if not one.requests)

    def lines(self) -> Iterator[str]:
        """Yield sentences about the table: the strongest model, the cheapest good model, and models without results."""
        best, good = self.strongest, self.cheapest_good
        if best is not None and best.accuracy:
            sparse = f", of {best.requests} requests only" if best.requests < LEAST_REQUESTS else ""
            yield f"Strongest by the rows: {best.name}, {100 * best.accuracy:.0f} % {self.counted}{sparse}."
            if good is not None and good is not best:
                yield (
                    f"Cheapest good one: {good.name}, {100 * (good.accuracy or 0.0):.0f} % {self.counted} of"
                    f" {good.requests} requests, "
                    f"${good.usd_per_1000:.4g} per 1,000 in place of ${best.usd_per_1000:.4g}."
                )
        for one in self.without_rows:
            yield (
                f"{one.name} has no row: one run costs about ${one.usd_per_1000 / 1000:.4g}, more than its comparison had "
                "left. Nothing is known of it; a larger budget asks it."
            )

    def table(self) -> list[tuple[str, ...]]:
        """Return a row of text for each model: name, requests, percent right with its interval, dollars per 1,000 requests."""
        found: list[tuple[str, ...]] = []
        for one in self.models:
            known = f"{100 * (one.accuracy or 0.0):.1f} ({100 * one.low:.0f} to {100 * one.high:.0f})" if one.requests else "-"
            name = f"{one.name} (runs today)" if one.is_current else one.name
            found.append((name, str(one.requests), known, f"{one.usd_per_1000:.4g}"))
        return found


def beta_interval(right: float, requests: int) -> tuple[float, float]:
    """Return the (lower, upper) bounds that contain an accuracy with probability :data:`LEVEL`; (0, 1) without requests.

    It is the central interval with Jeffreys' prior. ``right`` is the number of right answers, or the sum of scores, in
    ``requests`` requests.
    """
    from scipy.special import betaincinv  # a tenth of a second, which few commands need

    if not requests:
        return 0.0, 1.0
    a, b, tail = right + 0.5, requests - right + 0.5, (1.0 - LEVEL) / 2.0
    return float(betaincinv(a, b, tail)), float(betaincinv(a, b, 1.0 - tail))


def without_losers(models: Sequence[SingleModel]) -> list[SingleModel]:
    """Return the models that are not clearly worse than a cheaper model. The current setup always stays.

    Args:
        models: The models, cheapest first.
    """
    kept: list[SingleModel] = []
    best_low = 0.0
    for one in models:
        if one.is_current or one.high >= best_low:
            kept.append(one)
        if one.requests:
            best_low = max(best_low, one.low)
    return kept


def is_apart(models: Sequence[SingleModel]) -> bool:
    """Return whether the accuracy interval of one model lies above the intervals of all other models with results.

    If there are several models, but fewer than two of them have results, the result is False.
    """
    known = [one for one in models if one.requests]
    if len(known) < 2:
        return len(models) < 2
    best = max(known, key=lambda one: one.low)
    return all(one is best or best.low > one.high for one in known)
