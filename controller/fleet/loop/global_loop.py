"""The fleet's global loop: reads which calls are in flight, runs a policy, and publishes its orders."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

from vinelm.controller.fleet.loop.leadership import Leadership
from vinelm.controller.fleet.loop.order_bytes import order_fields
from vinelm.controller.fleet.loop.policy_runs import PolicyAnswer, PolicyRunner
from vinelm.controller.fleet.neighbours import FleetReader
from vinelm.controller.fleet.orders import FleetPolicy
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.errors import ConfigError, FleetUnreachable

PERIOD_S = 0.25
"""Seconds from one round to the next; processes publish at the same rate."""
MOST_PERIOD_S = 10.0
"""With a longer period, orders would be forgotten between two rounds."""


@dataclass(frozen=True, slots=True)
class LoopRound:
    """The result of one round of the global loop.

    Attributes:
        leads: whether this loop was the leader; if not, it only waited.
        leader: name of the leading loop; empty if Redis did not answer.
        version: the version of the orders that this loop installed last; 0 if it never did.
        rows: number of live calls in the view.
        processes: number of processes in the view.
        view_s, policy_s, install_s: seconds taken to read the view, run the policy and install its orders; 0 for steps that
            were not reached.
        problem: one line on what went wrong; empty if nothing did.
    """

    leads: bool
    leader: str = ""
    version: int = 0
    rows: int = 0
    processes: int = 0
    view_s: float = 0.0
    policy_s: float = 0.0
    install_s: float = 0.0
    problem: str = ""


class GlobalLoop:
    """Runs a policy over a fleet while this loop leads, and otherwise waits for the leader to fail. For one thread.

    Args:
        link: the connection to the fleet's Redis; used only by this loop.
        policy: computes orders from a view. If the policy fails, hangs or returns invalid orders, :attr:`LoopRound.problem`
            says so and the last good orders stay. The policy's code is not sandboxed.
        period_s: seconds from one round to the next, and the time limit of the policy.

    Raises:
        ConfigError: ``period_s`` is out of range.
    """

    def __init__(self, link: RedisLink, policy: FleetPolicy, *, period_s: float = PERIOD_S) -> None:
        if not 0.0 < period_s <= MOST_PERIOD_S:
            raise ConfigError(f"period_s is {period_s:g}: give seconds above 0, up to {MOST_PERIOD_S:g}", code="fleet-period")
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.period_s = period_s
        self._link = link
        self._reader, self._runner = FleetReader(link), PolicyRunner(policy, period_s)
        self._leadership = Leadership(link, self.name)
        self._stopped = Event()

    def round(self) -> LoopRound:
        """Run one round and return its result.

        The loop stands for election. If it leads, it runs the policy on the current view and installs the policy's orders.
        """
        try:
            if not self._leadership.stand():
                return LoopRound(False, self._leadership.leader)
            return self._lead()
        except FleetUnreachable as error:
            return LoopRound(
                False, problem=f"{error}: the processes keep their orders for a while, and go on without them then"
            )

    def _lead(self) -> LoopRound:
        began_s = time.monotonic()
        view = self._reader.view()
        read_s = time.monotonic()
        run = self._runner.run(view) if view.processes else PolicyAnswer(None, "", 0.0)  # otherwise no process could obey
        asked_s = time.monotonic()
        # A policy that fails once must not undo the present orders: without new ones the last good orders are prolonged.
        fields = {} if run.orders is None else order_fields(run.orders, view)
        problem = run.problem
        if not self._leadership.install(fields):
            problem = "another loop leads by now: these orders were refused"
        return LoopRound(
            self._leadership.leads,
            self._leadership.leader,
            self._leadership.version,
            len(view),
            len(view.processes),
            read_s - began_s,
            asked_s - read_s,
            time.monotonic() - asked_s,
            problem,
        )

    def run(self, tell: Callable[[LoopRound], object]) -> None:
        """Run rounds until :meth:`stop` is called, and pass the result of each round to ``tell``.

        At the end the loop resigns, so that another loop can lead at once.
        """
        while not self._stopped.is_set():
            until = time.monotonic() + self.period_s
            tell(self.round())
            # Counted from the beginning of the round, so that the round's own time does not lengthen the period.
            self._stopped.wait(max(until - time.monotonic(), 0.0))
        self.close()

    def stop(self) -> None:
        """Make :meth:`run` end after its current round. May be called from a signal handler or another thread."""
        self._stopped.set()

    def close(self) -> None:
        """Resign, if this loop leads, and close the connection."""
        try:
            if self._leadership.leads:
                self._leadership.resign()
        except FleetUnreachable:
            pass  # its lock expires
        self._reader.close()
