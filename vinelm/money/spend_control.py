"""Corrects limits on the mean cost per request by the real cost of the requests.

A correction is needed because traffic changes and estimates become outdated.
"""

from __future__ import annotations

import math
import threading
from dataclasses import replace

from vinelm.objective import Objective

EVERY = 50
"""Number of requests after which the bound is corrected again."""
MEMORY = 200.0
"""Number of requests that the running means look back on."""
MOST = 1.5
"""The corrected bound is at most this multiple of the bound, and at least the bound divided by it."""
FINENESS = 1.02
"""Without mixed plans the bound moves in steps of this factor, so that only few plans are made."""
STEP = 0.5
"""Fraction of the correction, on a log scale, that is made at a time."""


class SpendControl:
    """Multiplies an objective's limit on the mean cost per request (``cost_budget="population"``) by a factor that
    follows real spending. Thread-safe.

    The factor is planned dollars divided by real dollars, so it is above 1 if requests cost less than planned. It
    changes slowly, and within a fixed range. Requests are counted when they begin, dollars when they are spent.

    In a fleet all processes share one factor (:meth:`take_counted`, :meth:`follow`).

    Args:
        objective: an objective with a limit on the mean cost per request.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._lock = threading.Lock()
        self._factor = 1.0
        self._since = 0
        self._requests = self._planned_usd = self._spent_usd = 0.0
        self._corrected = objective
        self._is_led = False
        self._counted = [0.0, 0.0, 0.0]  # requests, planned and spent dollars not yet reported to the fleet

    @staticmethod
    def applies_to(objective: Objective) -> bool:
        """Return whether the objective limits the mean cost per request."""
        return objective.max_cost_usd is not None and objective.cost_budget == "population"

    @property
    def factor(self) -> float:
        """The current factor: the corrected cost limit divided by the objective's own limit, in [1 / MOST, MOST]."""
        with self._lock:
            return self._factor

    def begin(self) -> Objective:
        """Return the objective, with its corrected limit, for the plan of the next request."""
        with self._lock:
            if not self._is_led and self._since >= EVERY and self._planned_usd > 0.0 and self._spent_usd > 0.0:
                self._correct()
            return self._corrected

    def planned(self, usd: float) -> None:
        """Count a request, with its planned cost in dollars."""
        with self._lock:
            keep = 1.0 - 1.0 / MEMORY
            self._requests = self._requests * keep + 1.0
            self._planned_usd = self._planned_usd * keep + usd
            self._spent_usd *= keep
            self._since += 1
            self._counted[0] += 1.0
            self._counted[1] += usd

    def spent(self, usd: float) -> None:
        """Add the dollars that a request has spent."""
        with self._lock:
            self._spent_usd += usd
            self._counted[2] += usd

    def take_counted(self) -> tuple[float, float, float]:
        """Return (requests, their planned dollars, dollars spent), each counted since the last call of this method."""
        with self._lock:
            requests, planned_usd, spent_usd = self._counted
            self._counted = [0.0, 0.0, 0.0]
            return requests, planned_usd, spent_usd

    def follow(self, factor: float | None) -> None:
        """Use ``factor``, which another process has computed, until the next call of this method.

        With None, this process computes the factor from its own counts again.
        """
        with self._lock:
            self._is_led = factor is not None
            if factor is not None:
                self._apply(factor)

    def _correct(self) -> None:
        # Only a part of the way, on a log scale: some of the recent spending comes from requests planned with the earlier
        # factor, so that a full step would overshoot.
        wanted = self._planned_usd / self._spent_usd
        self._apply(self._factor ** (1.0 - STEP) * wanted**STEP)
        self._since = 0

    def _apply(self, factor: float) -> None:
        self._factor = min(max(factor, 1.0 / MOST), MOST)
        assert self.objective.max_cost_usd is not None
        factor = self._factor
        if not self.objective.mixes:  # in a mixture the share moves, and the plans stay
            factor = FINENESS ** round(math.log(factor) / math.log(FINENESS))
        self._corrected = replace(self.objective, max_cost_usd=self.objective.max_cost_usd * factor)
