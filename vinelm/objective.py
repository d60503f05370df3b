"""The objective of one request: a target to optimize and optional limits (docs/architecture.md#objectives)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from reprlib import repr as shown
from typing import Any, Literal, get_args

from vinelm.errors import ConfigError
from vinelm.meant import did_you_mean, fraction_meant, number_meant

Target = Literal["accuracy", "cost", "latency"]
Risk = Literal["mean", "mean+sd", "dp"]
CostBudget = Literal["population", "per_request"]
OnInfeasible = Literal["best_effort", "raise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The target of a request (maximize accuracy, or minimize cost or latency), within any combination of limits (bounds).

    Immutable. Making an equal objective for each request is as fast as keeping one.

    Args:
        maximize: ``"accuracy"``; either this or ``minimize`` must be set.
        minimize: ``"cost"`` or ``"latency"``.
        min_accuracy: Fraction in [0, 1], on average over requests (VineLM paper §4.3).
        max_cost_usd: Dollars per request; ``cost_budget`` determines its meaning.
        max_latency_s: Seconds from the request's arrival to its answer, for each request.
        cost_budget: ``"population"`` bounds the mean over requests; ``"per_request"`` bounds each request, planned with the 95
            % quantile of each call's dollars.
        risk: What the latency bound applies to: ``"mean"`` (as in the paper), ``"mean+sd"`` (plus ``z`` standard
            deviations of the remaining path) or ``"dp"`` (the chance of being late: a stochastic program over the
            remaining time).
        z: Number of standard deviations, >= 0. With ``risk="mean+sd"`` (default 1) they are added to the remaining path's mean
            latency. With ``cost_budget="per_request"`` they are added to each call's mean dollars, and the sums replace the
            quantiles.
        late_weight: With ``risk="dp"`` and ``maximize="accuracy"``: how many correct answers outweigh one late answer,
            >= 0 (default 0.75). A larger weight gives fewer late answers and fewer correct ones.
        confidence: Plan by the lower end of the one-sided accuracy interval of this level, in (0.5, 1). Needs
            ``maximize="accuracy"`` or ``min_accuracy``.
        mix: Whether requests may be divided between two plans so that the mean over requests meets ``max_cost_usd`` (with
            ``cost_budget="population"``) or ``min_accuracy``.
        on_infeasible: What to do if no path meets the bounds, or if no model is left for a request: ``"best_effort"`` relaxes a
            bound, ``"raise"`` raises :class:`InfeasibleError`, which names the bound.

    Raises:
        ConfigError: A bound is NaN, negative or out of range, or a setting has no effect.
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
    mix: bool = True
    on_infeasible: OnInfeasible = "best_effort"
    shape: tuple[object, ...] = field(init=False, repr=False, compare=False)
    """Key of the planner's lookup tables: the settings, and which bounds are set, without their values."""

    def __post_init__(self) -> None:
        _one_of("maximize", self.maximize, (None, "accuracy"))
        _one_of("minimize", self.minimize, (None, "cost", "latency"))
        if (self.maximize is None) == (self.minimize is None):
            raise ConfigError(
                'an objective needs exactly one target: maximize="accuracy", minimize="cost" or minimize="latency"'
            )
        self._check_numbers()
        _one_of("mix", self.mix, (True, False))
        _one_of("cost_budget", self.cost_budget, get_args(CostBudget))
        _one_of("risk", self.risk, get_args(Risk))
        _one_of("on_infeasible", self.on_infeasible, get_args(OnInfeasible))
        self._check_effects()
        object.__setattr__(self, "shape", self._shape())

    def _check_numbers(self) -> None:
        for name in _NUMBERS:
            _number(name, getattr(self, name))
        if self.min_accuracy is not None and not 0.0 <= self.min_accuracy <= 1.0:
            raise ConfigError(
                f"min_accuracy is {self.min_accuracy}: it must be a fraction in [0, 1]{fraction_meant(self.min_accuracy)}"
            )
        for name in ("max_cost_usd", "max_latency_s", "z", "late_weight"):
            value = getattr(self, name)
            if value is not None and not (value >= 0.0 and math.isfinite(value)):
                raise ConfigError(f"{name} is {value}: it must be a finite number >= 0")
        if self.confidence is not None and not 0.5 < self.confidence < 1.0:
            raise ConfigError(f"confidence is {self.confidence}: it must lie in (0.5, 1){fraction_meant(self.confidence)}")

    def _check_effects(self) -> None:
        """Raise :class:`ConfigError` for settings that would have no effect."""
        if self.late_weight is not None and not (self.risk == "dp" and self.maximize):
            raise ConfigError('late_weight has no effect here: it needs risk="dp" and maximize="accuracy"')
        if self.cost_budget == "per_request" and self.max_cost_usd is None:
            raise ConfigError('cost_budget="per_request" has no effect without max_cost_usd: set it, or leave cost_budget out')
        if self.risk != "mean" and self.max_latency_s is None:
            raise ConfigError(f'risk="{self.risk}" has no effect without max_latency_s: set it, or leave risk out')
        if self.z is not None and self.risk != "mean+sd" and self.cost_budget != "per_request":
            raise ConfigError('z has no effect here: it needs risk="mean+sd" or cost_budget="per_request"')
        if self.confidence is not None and self.maximize is None and self.min_accuracy is None:
            raise ConfigError('confidence has no effect here: it needs maximize="accuracy" or min_accuracy')
        if not self.mix and self._mean_bound is None:
            raise ConfigError(
                "mix=False has no effect here: plans are mixed within max_cost_usd as a mean (maximize accuracy), "
                "or above min_accuracy (minimize cost)"
            )

    def _shape(self) -> tuple[object, ...]:
        bounds = (self.min_accuracy is not None, self.max_cost_usd is not None, self.max_latency_s is not None)
        return (self.target, *bounds, self.cost_budget, self.risk, self.z, self.confidence)

    @property
    def target(self) -> Target:
        """The quantity that plans maximize (accuracy) or minimize (cost or latency)."""
        return self.maximize or self.minimize or "accuracy"

    @property
    def mixes(self) -> bool:
        """Whether requests may be divided between two plans.

        They may if ``mix`` is set and there is a limit on a mean: on the mean cost if accuracy is maximized, or on the
        mean accuracy if cost is minimized. With ``risk="dp"`` they may not. Cost limits and deadlines that hold for
        each request are not means, so every plan of a traffic split keeps them.
        """
        return self.mix and self._mean_bound is not None

    def drawn(self, bound: float) -> Objective:
        """Return the objective for one plan of a traffic split, with ``bound`` as the limit on the mean.

        Args:
            bound: The new limit on the mean cost (dollars) or mean accuracy (fraction) of this plan. Any other limit on a mean
                is left out, since the traffic split as a whole has to meet such a limit, not each plan.

        Raises:
            ConfigError: The objective has no limit on a mean for which traffic is split.
        """
        name = self._mean_bound
        if name is None:
            raise ConfigError("plans are mixed under a bound on a mean only, and this objective has none")
        if name == "max_cost_usd":
            return replace(self, max_cost_usd=bound, min_accuracy=None, mix=False)
        cap = self.max_cost_usd if self.cost_budget == "per_request" else None
        return replace(self, max_cost_usd=cap, min_accuracy=bound, mix=False)

    @property
    def by_means(self) -> Objective:
        """A copy of this objective with ``risk="mean"`` if its risk is "dp"; otherwise this objective itself."""
        return replace(self, risk="mean", late_weight=None) if self.risk == "dp" else self

    @property
    def _mean_bound(self) -> Literal["max_cost_usd", "min_accuracy"] | None:
        """The name of the objective's limit on a mean that two mixed plans could meet together; None without such a limit."""
        if self.risk == "dp":
            return None
        if self.target == "accuracy" and self.max_cost_usd is not None and self.cost_budget == "population":
            return "max_cost_usd"
        return "min_accuracy" if self.target == "cost" and self.min_accuracy is not None else None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as JSON types."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init and getattr(self, f.name) != f.default}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Objective:
        """Make an objective from JSON types, the inverse of :meth:`to_dict`.

        Raises:
            ConfigError: A key is not a field of an objective, or a value is invalid.
        """
        if not isinstance(plain, Mapping):
            raise ConfigError(f"an objective is {type(plain).__name__}: it must be an object of fields and values")
        names = {f.name for f in fields(cls) if f.init}
        for key in plain:
            if key not in names:
                raise ConfigError(
                    f"an objective has no field {shown(key)}{did_you_mean(key, names)}: it has {', '.join(sorted(names))}"
                )
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


_NUMBERS = ("min_accuracy", "max_cost_usd", "max_latency_s", "z", "late_weight", "confidence")


def _number(name: str, value: object) -> None:
    """Raise :class:`ConfigError` unless the value is None or a number. Bools and integers too large for a float are refused.
    ``name`` is used in the message.
    """
    if value is None or type(value) is float:
        return
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(f"{name} is {shown(value)}: it must be a number{number_meant(value)}")
    try:
        float(value)
    except OverflowError:
        raise ConfigError(f"{name} is too large: it must be a finite number") from None


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        words = ", ".join(repr(item) for item in allowed if item is not None)
        raise ConfigError(f"{name} is {shown(value)}{did_you_mean(value, filter(None, allowed))}: use {words}")
