"""Refuses orders that cannot be meant: before they are installed, so that the last good ones stay."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from vinelm.controller.fleet.policies.orders import Orders
from vinelm.controller.fleet.policies.session_priorities import SessionArray
from vinelm.controller.fleet.view import FleetView
from vinelm.errors import ConfigError

CODE = "fleet-orders"


def check_orders(orders: object, view: FleetView) -> Orders:
    """Return what a policy made of a view, if it can be installed.

    Raises:
        ConfigError: it is not :class:`Orders`; it names an engine, a process or a conversation that the view does not have; a
            weight, share or priority is no number, infinite, or negative where it must not be. One line.
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
    place = np.searchsorted(known, given)  # quicker than np.isin, as the given ones are sorted, too
    unknown = given[(place == len(known)) | (known.take(place, mode="clip") != given if len(known) else True)]
    if len(unknown):
        raise _refused(f"{name}: {_count(len(unknown))} not in the view, {int(unknown[0])} for one: use those of view.session")


def _count(sessions: int) -> str:
    return f"{sessions:,} sessions are" if sessions > 1 else "1 session is"


def _refused(what: str) -> ConfigError:
    return ConfigError(f"orders refused: {what}", code=CODE)
