"""Reports the live calls of one request to the fleet. Callers handle errors raised here."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import SupportsFloat

from vinelm.controller.fleet.live_invocations import InvocationStart, LiveInvocations
from vinelm.controller.fleet.loop.standing_orders import CallStanding, StandingOrders
from vinelm.controller.planner import Planner
from vinelm.controller.planning.decision import Decision
from vinelm.controller.session.call_follower import RequestWatcher
from vinelm.requests.protocols import Invocation


class SessionRows(RequestWatcher):
    """Reports the live calls of one request to the fleet. Thread-safe.

    Args:
        live: this process's table of live calls, which the request's calls are added to.
        planner: gives the engine of each model and the trie's node of each path.
        session: number of the conversation; see :func:`~vinelm.controller.session_number`.
        tenant: the request's tenant; "" without one.
        deadline_s: the request's bound on seconds from its arrival; None without a bound.
        note: returns one line for the request's trace that says why this process serves without the fleet; empty while Redis
            answers.
        orders: the fleet's current orders; None if unused.
    """

    __slots__ = ("_deadline_s", "_engine_of", "_live", "_node", "_note", "_orders", "_session", "_slots", "_tenant")

    def __init__(
        self,
        live: LiveInvocations,
        planner: Planner,
        *,
        session: int,
        tenant: str = "",
        deadline_s: float | None = None,
        note: Callable[[], str] = str,
        orders: StandingOrders | None = None,
    ) -> None:
        self._orders = orders
        self._live, self._session, self._tenant, self._note = live, session, tenant, note
        self._engine_of, self._node = planner.engine_of, planner.metrics.child
        self._deadline_s = math.nan if deadline_s is None else deadline_s
        self._slots: list[tuple[tuple[str, ...], int, str]] = []  # path, place, engine; append and remove are atomic

    def began(self, stage: str, path: tuple[str, ...], elapsed_s: float, decision: Decision | None) -> None:
        """Record that the call at the end of ``path`` begins, ``elapsed_s`` seconds after the request's arrival.

        ``decision`` is the plan that the call follows; None without a plan.
        """
        engine = self._engine_of.get(path[-1])
        if engine is None:
            return
        node = -1
        if decision is not None:
            with suppress(KeyError):
                node = self._node(decision.node, path[-1], stage)
        start = InvocationStart(self._session, self._tenant, stage, node, engine, elapsed_s, self._deadline_s)
        rest = None if decision is None else partial(expected_rest, decision)
        self._slots.append((path, self._live.begin(start, rest), engine))

    def gate(self, path: tuple[str, ...], waits: bool, sent_to: str | None = None) -> None:
        """Record that the call at the end of ``path`` begins to wait for rate limits, or that it was sent.

        ``waits`` is True if the call begins to wait, and False if it was sent. ``sent_to`` names the replica that it was sent
        to, if any.
        """
        for known, slot, engine in self._slots:
            if known == path:
                if waits:
                    self._live.queue(slot, engine)
                else:
                    self._live.run(slot, sent_to)
                return

    def standing(self, stage: str, priority: float) -> SupportsFloat:
        """Return the priority of a call of ``stage`` under the fleet's orders.

        It is the request's own ``priority`` plus the priority that the fleet's policy has ordered for the call. ``float()`` of
        the result always uses the present orders.
        """
        if self._orders is None:
            return priority
        return CallStanding(self._orders, self._session, self._tenant, stage, priority)

    def note(self) -> str:
        """Return one line for the request's trace that says why this process serves without the fleet.

        It is empty while Redis answers.
        """
        return self._note()

    def ended(self, invocation: Invocation, excess_s: float | None) -> None:
        """Remove a call that has ended from the live calls, if it is among them. ``excess_s`` is ignored."""
        self.interrupted(invocation.prefix)

    def interrupted(self, path: tuple[str, ...]) -> None:
        """Remove the call at the end of ``path`` from the live calls, because it was interrupted without a result."""
        item = next((item for item in self._slots if item[0] == path), None)
        if item is None:
            return
        self._slots.remove(item)  # before it ends, since its place may be given to another invocation at once
        try:
            self._live.end(item[1])
        except BaseException:
            self._slots.append(item)  # it ends with the request
            raise

    def __del__(self) -> None:
        """Remove the live calls of a request that was dropped before its end."""
        with suppress(AttributeError):  # the object was never fully created
            for _, slot, _ in self._slots:
                self._live.end(slot)


def expected_rest(decision: Decision) -> tuple[float, float]:
    """Return the expected remaining seconds (at zero load) and dollars of a request that follows this decision.

    Either is NaN if it is unknown.
    """
    return decision.mean_rest_s, decision.remaining_cost_usd
