"""Placeholder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from vinelm.controller import Planner
from vinelm.objective import Objective

Finish = Literal["all", "good"]


@dataclass(frozen=True)
class Drawn:
    planner: Planner
    objective: Objective


@dataclass(frozen=True)
class Forecast:
    requests: int
    usd: float
    seconds: float
    accuracy: float


class Steering:
    def __init__(self, planner, objective, *, budget_usd, deadline_s, requests, workers, finish="all") -> None:
        self.planner, self.objective, self.budget_usd = planner, objective, budget_usd
        self.requests, self.workers = requests, workers
        self.o = objective
        if budget_usd is not None:
            self.o = replace(objective, max_cost_usd=budget_usd / max(requests, 1))

    def resume(self, **k) -> None: ...

    def next(self, key, *, elapsed_s):
        return Drawn(self.planner, self.o)

    def ended(self, *, cost_usd, seconds) -> None: ...

    def forecast(self) -> Forecast:
        d = self.planner.mixed(self.o)
        return Forecast(self.requests, d.path_cost_usd * self.requests, d.promise.latency_s * self.requests / self.workers, d.promise.accuracy)
