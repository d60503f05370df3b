"""The orders of a policy to all processes of a fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce

from vinelm.controller.fleet.policies.session_priorities import SessionPriorities
from vinelm.controller.fleet.view import FleetView
from vinelm.errors import ConfigError

MOST_PRIORITY = 100.0
"""A call's priority is cut to this, and to its negative, after all that is said of it has been added."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Orders:
    """Orders for engines, calls and processes. Anything not named stays as it is without orders. Immutable.

    Orders steer; none of them makes a request fail, or wait where there is room.

    Attributes:
        weights: engine to its weight, >= 0; 1 where nothing is said. Concerns replicas: a call of a group goes to the replica
            with the fewest calls in flight for its weight. A replica of weight 0 gets no call, unless all of its group have 0.
        pins: conversation to the replica that its calls go to while it has room and its weight is above 0. A pin chooses among
            the replicas of a group, never another model: that is for the plan.
        sessions: conversation to priority; a mapping, or :class:`SessionPriorities`. One step is worth 10 s of waiting.
        tenants: tenant to priority.
        stages: stage to priority. A call's priority is that of its request, its conversation, its tenant and its stage, added.
        shares: process to its part of common limits, >= 0, relative to the others; 1 where nothing is said. It is what a
            process may count on when limits are short: it gets more if others leave it.
        version: counts the orders of a fleet; 0 before they are installed.
        fence: the fencing number of the leader that installed them; 0 before.

    Raises:
        ConfigError: ``sessions`` is no mapping of numbers to numbers.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    pins: Mapping[int, str] = field(default_factory=dict)
    sessions: Mapping[int, float] = field(default_factory=dict)
    tenants: Mapping[str, float] = field(default_factory=dict)
    stages: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    version: int = 0
    fence: int = 0

    def __post_init__(self) -> None:
        for name in ("weights", "pins", "sessions", "tenants", "stages", "shares"):
            if not isinstance(getattr(self, name), Mapping):
                raise ConfigError(f"orders: {name} is a {type(getattr(self, name)).__name__}: give a mapping")
        object.__setattr__(self, "sessions", SessionPriorities.of(self.sessions))

    @property
    def by_session(self) -> SessionPriorities:
        """``sessions`` as columns."""
        assert isinstance(self.sessions, SessionPriorities)
        return self.sessions

    def priority(self, session: int, tenant: str, stage: str) -> float:
        """Return the steps of priority of a call, from -100 to 100, beside those of its request."""
        total = self.sessions.get(session, 0.0) + self.tenants.get(tenant, 0.0) + self.stages.get(stage, 0.0)
        return min(max(total, -MOST_PRIORITY), MOST_PRIORITY)

    def __add__(self, other: Orders) -> Orders:
        """Return what both say: weights and shares multiply, priorities add up, of two pins the second counts."""
        return Orders(
            weights=_products(self.weights, other.weights),
            pins={**self.pins, **other.pins},
            sessions=self.by_session + other.by_session,
            tenants=_sums(self.tenants, other.tenants),
            stages=_sums(self.stages, other.stages),
            shares=_products(self.shares, other.shares),
        )


FleetPolicy = Callable[[FleetView], Orders]
"""A pure function of what is under way: the same view gives the same orders."""


def combined(policies: Iterable[FleetPolicy]) -> FleetPolicy:
    """Return the policy that says what all of these say; see :meth:`Orders.__add__`."""
    all_of_them = tuple(policies)

    def policy(view: FleetView) -> Orders:
        return reduce(Orders.__add__, (one(view) for one in all_of_them), Orders())

    return policy


def _products(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 1.0) * other.get(name, 1.0) for name in (*one, *other)}


def _sums(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in (*one, *other)}
