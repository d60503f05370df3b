"""A serving process of the simulated fleet: the parts of VineLM that a real one has, told of virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from fleet_parts.memory_link import MemoryLink
from fleet_parts.workload import FleetWorkload

from vinelm.backends import EngineRateLimiter, RateLimits, ReplicaGate
from vinelm.backends.remote.rate_share import turn_key
from vinelm.clock import Clock
from vinelm.controller import (
    FleetMember,
    FleetReader,
    InFlightLoadMonitor,
    LiveInvocations,
    Orders,
    RedisLink,
    Session,
    SessionRows,
    check_orders,
    fleet_policy,
)
from vinelm.objective import Objective


class GlobalLoop:
    """The leader: makes orders of what all processes have published.

    Args:
        link: what stands for Redis.
        policy: its name, as `vinelm fleet run` takes it.
        clock: virtual time.
    """

    def __init__(self, link: MemoryLink, policy: str, clock: Clock) -> None:
        self.orders = Orders()
        self._reader = FleetReader(cast("RedisLink", link), clock.now)
        self._policy = fleet_policy(policy)

    def round(self) -> None:
        """Make new orders."""
        view = self._reader.view()
        self.orders = check_orders(self._policy(view), view)


class ServingProcess:
    """One process: its monitor of load, its gates, its live invocations, and its membership of the fleet.

    Args:
        name: unique in the fleet.
        workload: the trie, the engines and their curves.
        clock: virtual time.
        link: what stands for Redis.
    """

    def __init__(self, name: str, workload: FleetWorkload, clock: Clock, link: MemoryLink) -> None:
        self.live = LiveInvocations(name, clock.now)
        self.monitor = InFlightLoadMonitor(workload.curves, clock=clock)
        self.member = FleetMember(cast("RedisLink", link), self.live, now=clock.now)
        self.gates = {
            model: ReplicaGate({engine: EngineRateLimiter(RateLimits(), clock) for engine in engines}, clock)
            for model, engines in workload.replicas.items()
        }
        self.orders = Orders()
        for gate in self.gates.values():
            gate.weights = lambda: self.orders.weights
        self._own: Counter[str] = Counter()
        self._workload, self._clock = workload, clock

    def see_others(self) -> None:
        """Count the other members' invocations beside the own ones, as ``fleet=`` does."""
        self.monitor.others = lambda: self.member.others

    def suppose_others(self, processes: int) -> None:
        """Suppose that each of the other processes has as many calls in flight as this one."""
        self.monitor.others = lambda: {engine: (processes - 1) * calls for engine, calls in self._own.items()}

    def session(self, request: int, objective: Objective) -> Session:
        """Return the session of a request that arrives now. The stop rule is the oracle's: the state says if it is right."""
        rows = SessionRows(self.live, self._workload.planner, session=request, deadline_s=objective.max_latency_s)
        return Session(
            self._workload.planner,
            objective,
            clock=self._clock,
            judge=bool,
            load=self.monitor,
            rows=rows,
        )

    def round(self, leader: GlobalLoop | None) -> None:
        """Publish, read the others, and take the orders that are installed."""
        self.member.round()
        if leader is not None:
            self.orders = leader.orders

    @contextmanager
    def call(self, model: str, request: int, stage: str) -> Iterator[tuple[str, float]]:
        """Send a call of a request during the block; gives the engine that serves it, and the key of its place in line."""
        priority = self.orders.priority(request, "", stage)
        self._own[model] += 1
        try:
            with self.gates[model].admit(0, self._clock.sleep, priority) as permit:
                yield self._workload.replicas[model][permit.replica], turn_key(self._clock.now(), priority)
        finally:
            self._own[model] -= 1
