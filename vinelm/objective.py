"""What one request wants: one target and any bounds on the rest (DESIGN §5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from vinelm.errors import ConfigError

Target = Literal["accuracy", "cost", "latency"]
Risk = Literal["mean", "mean+sd", "dp"]
CostBudget = Literal["population", "per_request"]
OnInfeasible = Literal["best_effort", "raise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Maximise accuracy, or minimise cost or latency, within any combination of bounds.

    - ``min_accuracy``: fraction in [0, 1]; met on average over requests (§4.3).
    - ``max_cost_usd``: dollars per request; on average over requests with ``cost_budget="population"``, for each
      request with ``"per_request"`` (then undiscounted, see DESIGN §5).
    - ``max_latency_s``: seconds from the request's arrival to its answer, for each request.
    - ``risk``: how the latency bound is read: ``"mean"`` (the paper), ``"mean+sd"`` (plus ``z`` standard deviations of the
      remaining path), or ``"dp"`` (stochastic dynamic program over the remaining time).
    - ``late_weight``: for the program that maximizes accuracy, how many right answers in time make up for one late answer, >= 0
      (by default 0.75): more gives fewer late answers and fewer right ones.
    - ``confidence``: plan against the lower end of the accuracy interval of this level, in (0.5, 1).
    - ``on_infeasible``: ``"best_effort"`` relaxes the bound that no path meets; ``"raise"`` names it.

    Raises :class:`ConfigError` for a bound that is NaN, negative or out of range, and for a setting without effect.
    """

    maximize: Literal["accuracy"] | None = None
    minimize: Literal["cost", "latency"] | None = None
    min_accuracy: float | None = None
    max_cost_usd: float | None = None
    max_latency_s: float | None = None
    cost_budget: CostBudget = "population"
    risk: Risk = "mean"
    z: float | None = None
    late_weight: float | None = None
    confidence: float | None = None
    on_infeasible: OnInfeasible = "best_effort"

    def __post_init__(self) -> None:
        _one_of("maximize", self.maximize, (None, "accuracy"))
        _one_of("minimize", self.minimize, (None, "cost", "latency"))
        if (self.maximize is None) == (self.minimize is None):
            raise ConfigError(
                'an objective needs exactly one target: maximize="accuracy", minimize="cost" or minimize="latency"'
            )
        if self.min_accuracy is not None and not 0.0 <= self.min_accuracy <= 1.0:
            raise ConfigError(f"min_accuracy is {self.min_accuracy}: it must be a fraction in [0, 1]")
        for name in ("max_cost_usd", "max_latency_s"):
            value = getattr(self, name)
            if value is not None and not (value >= 0.0 and math.isfinite(value)):
                raise ConfigError(f"{name} is {value}: it must be a finite number >= 0")
        _one_of("cost_budget", self.cost_budget, get_args(CostBudget))
        _one_of("risk", self.risk, get_args(Risk))
        _one_of("on_infeasible", self.on_infeasible, get_args(OnInfeasible))
        if self.confidence is not None and not 0.5 < self.confidence < 1.0:
            raise ConfigError(f"confidence is {self.confidence}: it must lie in (0.5, 1)")
        if self.z is not None and not (self.z >= 0.0 and math.isfinite(self.z)):
            raise ConfigError(f"z is {self.z}: it must be a finite number >= 0")
        if self.late_weight is not None and not (self.late_weight >= 0.0 and math.isfinite(self.late_weight)):
            raise ConfigError(f"late_weight is {self.late_weight}: it must be a finite number >= 0")
        if self.late_weight is not None and not (self.risk == "dp" and self.maximize):
            raise ConfigError('late_weight has no effect here: it needs risk="dp" and maximize="accuracy"')
        if self.cost_budget == "per_request" and self.max_cost_usd is None:
            raise ConfigError('cost_budget="per_request" has no effect without max_cost_usd: set it, or leave cost_budget out')
        if self.risk != "mean" and self.max_latency_s is None:
            raise ConfigError(f'risk="{self.risk}" has no effect without max_latency_s: set it, or leave risk out')
        if self.z is not None and self.risk != "mean+sd" and self.cost_budget != "per_request":
            raise ConfigError('z has no effect here: it needs risk="mean+sd" or cost_budget="per_request"')

    @property
    def target(self) -> Target:
        """What is maximised (accuracy) or minimised (cost, latency)."""
        return self.maximize or self.minimize or "accuracy"

    def to_dict(self) -> dict[str, Any]:
        """The fields that differ from their defaults, as plain JSON types."""
        defaults = {f.name: f.default for f in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != defaults[name]}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Objective:
        """An objective from plain JSON; :class:`ConfigError` names an unknown key."""
        known = {f.name for f in fields(cls)}
        for key in plain:
            if key not in known:
                raise ConfigError(f"an objective has no field {key!r}: it has {', '.join(sorted(known))}")
        return cls(**plain)

    def describe(
        self,
        *,
        accuracy: Callable[[float], str] = "{:g}".format,
        usd: Callable[[float], str] = "${:g}".format,
        seconds: Callable[[float], str] = "{:g} s".format,
    ) -> str:
        """Return the target and the bounds as text, such as ``maximize accuracy, cost <= $0.01``.

        The arguments format the value of a bound with its unit.
        """
        words = ["maximize accuracy" if self.maximize else f"minimize {self.minimize}"]
        if self.min_accuracy is not None:
            words.append(f"accuracy >= {accuracy(self.min_accuracy)}")
        if self.max_cost_usd is not None:
            each = " for each request" if self.cost_budget == "per_request" else ""
            words.append(f"cost <= {usd(self.max_cost_usd)}{each}")
        if self.max_latency_s is not None:
            words.append(f"latency <= {seconds(self.max_latency_s)}")
        return ", ".join(words)

    def __str__(self) -> str:
        return self.describe()


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        words = ", ".join(repr(item) for item in allowed if item is not None)
        raise ConfigError(f"{name} is {value!r}: use {words}")
