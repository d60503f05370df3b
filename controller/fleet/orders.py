"""The orders that a policy gives to all processes of a fleet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from vinelm.controller.fleet.view import FleetView
from vinelm.errors import ConfigError
from vinelm.trie.arrays import FloatArray

SessionArray = np.ndarray[Any, np.dtype[np.uint64]]


class SessionPriorities(Mapping[int, float]):
    """A mapping from a conversation's number to its priority, stored in arrays. Immutable.

    Args:
        session: the number that identifies each conversation, as in :attr:`FleetView.session`. If a number is repeated, the
            highest of its priorities counts.
        priority: the priority of each of these conversations, same shape; one step is worth 10 s of waiting.
    """

    __slots__ = ("priority", "session")

    def __init__(self, session: SessionArray, priority: FloatArray) -> None:
        order = np.argsort(session)
        sorted_session, sorted_priority = session[order], np.asarray(priority, np.float64)[order]
        first = np.flatnonzero(np.diff(sorted_session, prepend=~sorted_session[:1]) != 0)
        self.session = sorted_session[first]
        self.priority = np.maximum.reduceat(sorted_priority, first) if len(first) else sorted_priority
        self.session.flags.writeable = self.priority.flags.writeable = False

    @classmethod
    def of(cls, given: Mapping[int, float]) -> SessionPriorities:
        """Return the priorities of a mapping, stored in arrays.

        Raises:
            ConfigError: a key is not a conversation's number, or a value is not a number.
        """
        if isinstance(given, SessionPriorities):
            return given
        try:
            return cls(np.array(list(given), np.uint64), np.array([float(value) for value in given.values()]))
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"orders: sessions has no numbers of conversations with priorities: {error}") from error

    def __getitem__(self, session: int) -> float:
        if not 0 <= session < 2**64:
            raise KeyError(session)
        place = int(np.searchsorted(self.session, np.uint64(session)))
        if place == len(self.session) or int(self.session[place]) != session:
            raise KeyError(session)
        return float(self.priority[place])

    def __iter__(self) -> Iterator[int]:
        return iter(self.session.tolist())

    def __len__(self) -> int:
        return len(self.session)

    def __add__(self, other: SessionPriorities) -> SessionPriorities:
        """Return the sum of both mappings' priorities; a conversation that a mapping lacks has priority 0 there."""
        if not len(self) or not len(other):
            return self if len(self) else other
        if np.array_equal(self.session, other.session):
            return SessionPriorities(self.session, self.priority + other.priority)
        session, place = np.unique(np.concatenate([self.session, other.session]), return_inverse=True)
        totals = np.bincount(place, np.concatenate([self.priority, other.priority])).astype(float)
        return SessionPriorities(session, totals)


MOST_PRIORITY = 100.0
"""A call's priority is limited to this and its negative, after everything has been added."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Orders:
    """Orders for engines, calls and processes. Immutable. Engines, calls and processes without an order work as usual.

    No order makes a request fail, or makes it wait while a replica that it may use has room.

    Attributes:
        weights: engine to weight, >= 0; an engine that is not named has weight 1. A call of a replica group goes to the replica
            with the fewest calls in flight relative to its weight. A replica of weight 0 gets no call, unless all replicas of
            its group have weight 0.
        pins: conversation to the replica that its calls go to while it has room and its weight is above 0. A pin chooses
            among the replicas of a group, never another model; the plan chooses models.
        sessions: conversation to priority; a mapping, or :class:`SessionPriorities`. One step is worth 10 s of waiting.
        tenants: tenant to priority.
        stages: stage to priority. A call's priority is that of its request, its conversation, its tenant and its stage, added.
        shares: process to its part of the common rate limits, >= 0, relative to other processes; 1 by default. A process can
            rely on this part when limits are short, and gets more if other processes leave some unused.

    Raises:
        ConfigError: ``sessions`` does not map numbers to numbers.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    pins: Mapping[int, str] = field(default_factory=dict)
    sessions: Mapping[int, float] = field(default_factory=dict)
    tenants: Mapping[str, float] = field(default_factory=dict)
    stages: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("weights", "pins", "sessions", "tenants", "stages", "shares"):
            if not isinstance(getattr(self, name), Mapping):
                raise ConfigError(f"orders: {name} is a {type(getattr(self, name)).__name__}: give a mapping")
        object.__setattr__(self, "sessions", SessionPriorities.of(self.sessions))

    @property
    def by_session(self) -> SessionPriorities:
        """The priority of each conversation's calls, from :attr:`sessions`, as an object that stores them in arrays."""
        assert isinstance(self.sessions, SessionPriorities)
        return self.sessions

    def priority(self, session: int, tenant: str, stage: str) -> float:
        """Return the priority steps, from -100 to 100, to add to the request's priority for this call."""
        total = self.sessions.get(session, 0.0) + self.tenants.get(tenant, 0.0) + self.stages.get(stage, 0.0)
        return min(max(total, -MOST_PRIORITY), MOST_PRIORITY)

    def __add__(self, other: Orders) -> Orders:
        """Return the combined orders: products of weights and shares, sums of priorities, and the pins of both.

        If both pin a conversation, the second operand's pin counts.
        """
        return Orders(
            weights=_products(self.weights, other.weights),
            pins={**self.pins, **other.pins},
            sessions=self.by_session + other.by_session,
            tenants=_sums(self.tenants, other.tenants),
            stages=_sums(self.stages, other.stages),
            shares=_products(self.shares, other.shares),
        )


FleetPolicy = Callable[[FleetView], Orders]
"""A pure function of the live invocations: the same view gives the same orders."""


def combined(policies: Iterable[FleetPolicy]) -> FleetPolicy:
    """Return a policy whose orders combine those of all the given policies; see :meth:`Orders.__add__`."""
    all_of_them = tuple(policies)

    def policy(view: FleetView) -> Orders:
        return reduce(Orders.__add__, (one(view) for one in all_of_them), Orders())

    return policy


def _products(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 1.0) * other.get(name, 1.0) for name in (*one, *other)}


def _sums(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in (*one, *other)}


# -- what is refused -------------------------------------------------------------------------------------------------


CODE = "fleet-orders"


def check_orders(orders: object, view: FleetView) -> Orders:
    """Return a policy's result unchanged if it is valid for a view.

    Raises:
        ConfigError: the result is not :class:`Orders`; it names an engine, a process or a conversation that the view does not
            have; a weight, share or priority is not a finite number, or is negative although it must not be. The message is one
            line.
    """
    if not isinstance(orders, Orders):
        raise _refused(f"the policy returned a {type(orders).__name__}: return vinelm.controller.Orders(...)")
    _check_names("weights", orders.weights, "engine", view.engines)
    _check_names("shares", orders.shares, "process", view.processes)
    for session, engine in orders.pins.items():
        if engine not in view.engines:
            raise _refused(f"pins: unknown engine {engine!r} for session {session!r}: {_known('engine', view.engines)}")
    for name, least in (("weights", 0.0), ("shares", 0.0), ("tenants", None), ("stages", None)):
        for key, value in getattr(orders, name).items():
            _check_number(name, key, value, least)
    priorities = orders.by_session
    wrong = np.flatnonzero(~np.isfinite(priorities.priority))
    if len(wrong):
        _check_number("sessions", int(priorities.session[wrong[0]]), float(priorities.priority[wrong[0]]), None)
    if len(priorities):
        _check_sessions("sessions", priorities.session, view)
    if orders.pins:
        try:
            pinned = np.array(list(orders.pins), np.uint64)
        except (TypeError, ValueError, OverflowError) as error:
            raise _refused("pins: a key is no number of a conversation: use those of view.session") from error
        _check_sessions("pins", pinned, view)
    return orders


def _check_names(name: str, given: Mapping[str, float], kind: str, known: Collection[str]) -> None:
    for key in given:
        if key not in known:
            raise _refused(f"{name}: unknown {kind} {key!r}: {_known(kind, known)}")


def _known(kind: str, names: Collection[str]) -> str:
    plural = "processes" if kind == "process" else f"{kind}s"
    return f"the fleet's {plural} are {', '.join(sorted(names))}" if names else f"the fleet has no {plural} now"


def _check_number(name: str, key: object, value: object, least: float | None) -> None:
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not np.isfinite(value):  # type: ignore[call-overload]
        raise _refused(f"{name} of {key!r} is {value!r}: give a finite number")
    if least is not None and value < least:  # type: ignore[operator]
        raise _refused(f"{name} of {key!r} is {value!r}: give a number from {least:g} up")


def _check_sessions(name: str, given: SessionArray, view: FleetView) -> None:
    known = np.sort(view.session)
    place = np.searchsorted(known, given)  # faster than np.isin, because the given ones are sorted, too
    unknown = given[(place == len(known)) | (known.take(place, mode="clip") != given if len(known) else True)]
    if len(unknown):
        raise _refused(f"{name}: {_count(len(unknown))} not in the view, {int(unknown[0])} for one: use those of view.session")


def _count(sessions: int) -> str:
    return f"{sessions:,} sessions are" if sessions > 1 else "1 session is"


def _refused(what: str) -> ConfigError:
    return ConfigError(f"orders refused: {what}", code=CODE)
