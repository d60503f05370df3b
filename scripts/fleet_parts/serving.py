"""A serving process of the simulated fleet, and its leader: the parts of VineLM that real ones have, told of virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from fleet_parts.memory_link import MemoryLink
from fleet_parts.workload import FleetWorkload

from vinelm.backends.limits.rate_limits import EngineRateLimiter, RateLimits
from vinelm.backends.limits.rate_share import turn_key
from vinelm.backends.limits.replica_gate import ReplicaGate
from vinelm.clock import Clock
from vinelm.controller import FleetReader, InFlightLoadMonitor, RedisLink, Session
from vinelm.controller.fleet.built_in_policies import fleet_policy
from vinelm.controller.fleet.joined.session_rows import SessionRows
from vinelm.controller.fleet.live_invocations import LiveInvocations
from vinelm.controller.fleet.loop.order_bytes import order_fields
from vinelm.controller.fleet.loop.standing_orders import StandingOrders
from vinelm.controller.fleet.member import FleetMember
from vinelm.controller.fleet.orders import check_orders
from vinelm.objective import Objective


class Leader:
    """The global loop: makes orders of what all processes have published.

    Args:
        link: what stands for Redis.
        policy: its name, as `vinelm fleet run` takes it.
        clock: virtual time.
    """

    def __init__(self, link: MemoryLink, policy: str, clock: Clock) -> None:
        self._link, self._policy = link, fleet_policy(policy)
        self._reader = FleetReader(cast("RedisLink", link), clock.now)

    def round(self) -> None:
        """Install new orders."""
        view = self._reader.view()
        self._link.install(order_fields(check_orders(self._policy(view), view), view))


class ServingProcess:
    """One process: its monitor of load, its gates, its live invocations, its membership of the fleet and its orders.

    Its engines have no rate limits, so that no call waits at a gate: calls wait in their engine.

    Args:
        number: unique in the fleet. Processes differ in which of equal replicas they take first.
        workload: the trie, the engines and their curves.
        clock: virtual time.
        link: what stands for Redis.
    """

    def __init__(self, number: int, workload: FleetWorkload, clock: Clock, link: MemoryLink) -> None:
        self.live = LiveInvocations(f"p{number:02}", clock.now)
        self.live.groups = {engine: model for model, engines in workload.replicas.items() for engine in engines}
        self.monitor = InFlightLoadMonitor(workload.curves, clock=clock)
        self.member = FleetMember(cast("RedisLink", link), self.live, now=clock.now)
        self.orders = StandingOrders(self.live.process, self._reorder, clock.now)
        self.gates = {
            model: ReplicaGate({engine: EngineRateLimiter(RateLimits(), clock) for engine in engines}, clock)
            for model, engines in workload.replicas.items()
        }
        for gate in self.gates.values():
            gate.first = number
        self._own: Counter[str] = Counter()
        self._workload, self._clock = workload, clock

    def see_others(self) -> None:
        """Count the other members' invocations beside the own ones and obey orders, as ``fleet=`` does."""
        self.monitor.others = self._others
        self.member.chores.append(self.orders)
        for gate in self.gates.values():
            gate.others, gate.weights = lambda: self.member.others, self.orders.weights

    def suppose_others(self, processes: int) -> None:
        """Suppose that each of the other processes has as many calls in flight as this one."""
        self.monitor.others = lambda: {engine: (processes - 1) * calls for engine, calls in self._own.items()}

    def session(self, request: int, objective: Objective) -> Session:
        """Return the session of a request that arrives now. The stop rule is the oracle's: the state says if it is right."""
        planner = self._workload.planner
        rows = SessionRows(self.live, planner, session=request, deadline_s=objective.max_latency_s, orders=self.orders)
        return Session(planner, objective, clock=self._clock, judge=bool, load=self.monitor, rows=rows)

    @contextmanager
    def call(self, session: Session, stage: str, path: tuple[str, ...]) -> Iterator[tuple[str, float]]:
        """Send a call during the block; gives the engine that serves it, and what orders the calls that wait there."""
        model = path[-1]
        assert session.standing is not None  # it has rows
        assert session.on_gate is not None
        priority = session.standing(stage, 0.0)
        self._own[model] += 1
        try:
            with self.gates[model].admit(0, self._clock.sleep, priority) as permit:
                session.on_gate(path, False, permit.engine)
                yield permit.engine, turn_key(self._clock.now(), priority)
        finally:
            self._own[model] -= 1

    def _others(self) -> Mapping[str, int]:
        """The others' calls by choice of the trie: those on all of its replicas."""
        found = self.member.others
        return {
            model: sum(found.get(engine, 0) for engine in {model, *engines})
            for model, engines in self._workload.replicas.items()
        }

    def _reorder(self) -> None:
        for gate in self.gates.values():
            gate.reorder()
