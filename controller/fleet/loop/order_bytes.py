"""Encodes orders as bytes: a common part, and one part per process. A process's part does not grow with the fleet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vinelm.controller.fleet.orders import Orders
from vinelm.controller.fleet.snapshot import from_bytes, to_bytes
from vinelm.controller.fleet.view import FleetView
from vinelm.errors import VineLMError

COMMON = "all"
"""The field with the part for all processes."""
_OWN = "process:"
_SESSION, _PRIORITY = np.dtype("<u8"), np.dtype("<f4")


def own_field(process: str) -> str:
    """Return the name of the Redis field with the orders for one process."""
    return _OWN + process


@dataclass(frozen=True, slots=True)
class LocalOrders:
    """The part of the fleet's orders that one process follows; for the other fields see :class:`~vinelm.controller.Orders`.

    Orders are weights of engines, priorities, the engines of pinned conversations, and shares of the rate limits.

    Attributes:
        share: the part of the common rate limits that this process can rely on, in (0, 1]; None for an equal part.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    tenants: Mapping[str, float] = field(default_factory=dict)
    stages: Mapping[str, float] = field(default_factory=dict)
    sessions: Mapping[int, float] = field(default_factory=dict)
    pins: Mapping[int, str] = field(default_factory=dict)
    share: float | None = None

    def priority(self, session: int, tenant: str, stage: str) -> float:
        """Return the number of priority steps to add to the request's own priority for a call.

        The call is given by its conversation (``session``), tenant and stage.
        """
        return self.sessions.get(session, 0.0) + self.tenants.get(tenant, 0.0) + self.stages.get(stage, 0.0)


def order_fields(orders: Orders, view: FleetView) -> dict[str, bytes]:
    """Return the Redis fields that hold these orders, by name: one common field, and one for each process of ``view``.

    A process's field holds its share of the rate limits. For its conversations with live calls, the field also holds the
    priorities and the engines to which the conversations are pinned.
    """
    names = {"weights": orders.weights, "tenants": orders.tenants, "stages": orders.stages}
    plain = {what: {name: float(value) for name, value in given.items()} for what, given in names.items()}
    fields = {COMMON: json.dumps(plain, separators=(",", ":")).encode()}
    priorities = orders.by_session
    place = np.searchsorted(priorities.session, view.session)
    known = priorities.session.take(place, mode="clip") == view.session if len(priorities) else np.zeros(len(view), bool)
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(view.process[rows], kind="stable")]
    ends = np.searchsorted(view.process[rows], np.arange(len(view.processes) + 1))
    shares, pins = _fractions(orders.shares, view.processes), _pins(orders, view)
    for number, process in enumerate(view.processes):
        mine = rows[ends[number] : ends[number + 1]]
        about = {"sessions": len(mine), "share": shares.get(process), "pins": pins.get(number, {})}
        columns = (view.session[mine].astype(_SESSION), priorities.priority[place[mine]].astype(_PRIORITY))
        fields[own_field(process)] = to_bytes(about, columns)
    return fields


def local_orders(common: bytes, own: bytes | None) -> LocalOrders:
    """Decode the orders for one process from the fields that :func:`order_fields` made.

    ``common`` is the field for all processes, ``own`` the process's field; None if the policy did not know the process yet.

    Raises:
        VineLMError: the bytes are invalid, or were written by another version of VineLM.
    """
    try:
        found: dict[str, Any] = {what: _numbers(given) for what, given in json.loads(common).items()}
        if own is not None:
            found |= _own(own)
        return LocalOrders(**found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VineLMError(f"not orders of this version of VineLM: {error}") from error


def _own(raw: bytes) -> dict[str, Any]:
    about, (session, priority) = from_bytes(raw, "sessions", (_SESSION, _PRIORITY))
    return {
        "sessions": dict(zip(session.tolist(), priority.tolist(), strict=True)),
        "pins": {int(number): str(engine) for number, engine in about["pins"].items()},
        "share": None if about["share"] is None else float(about["share"]),
    }


def _numbers(given: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in given.items()}


def _fractions(shares: Mapping[str, float], processes: tuple[str, ...]) -> dict[str, float]:
    """Return the fraction of the fleet's rate limits that each process gets; empty if there are no shares or all are zero."""
    parts = {process: float(shares.get(process, 1.0)) for process in processes}
    total = sum(parts.values())
    return {process: part / total for process, part in parts.items()} if shares and total > 0 else {}


def _pins(orders: Orders, view: FleetView) -> dict[int, dict[str, str]]:
    """Return the engines to which the orders pin conversations, for each process with live calls of such a conversation.

    The keys are indices of processes. The values are dicts from a conversation's number to the engine's name.
    """
    found: dict[int, dict[str, str]] = {}
    if orders.pins:
        rows = np.isin(view.session, np.array(list(orders.pins), np.uint64))
        for session, process in zip(view.session[rows].tolist(), view.process[rows].tolist(), strict=True):
            found.setdefault(process, {})[str(session)] = orders.pins[session]
    return found
