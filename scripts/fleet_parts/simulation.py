"""A fleet of serving processes on shared simulated engines, in virtual time; deterministic for a given seed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import simpy
from fleet_parts.memory_link import MemoryLink
from fleet_parts.serving import Leader, ServingProcess
from fleet_parts.workload import FleetWorkload
from science.recorded_table import RecordedTable

from vinelm.objective import Objective
from vinelm.requests.protocols import Invocation
from vinelm.rows.observation import Usage
from vinelm.trie.arrays import FloatArray

Knowledge = Literal["own", "own x n", "summaries", "fleet", "all"]
"""What a process knows of the load: its own calls; these times the number of processes; the others' summaries; these and the
orders of the global loop; or, for one process that serves everything, all calls at once and orders made for each."""
KNOWLEDGE: tuple[Knowledge, ...] = ("own", "own x n", "summaries", "fleet", "all")
POLICY = "slack+balance+shares"
"""Of the global loop. There are no common rate limits here, so its shares change nothing."""
SLO_S = 12.0
"""The first of the SLOs of `bench_slo.py` that idle engines miss for less than 2.5 % of the requests: so 5 % late is load."""
Steps = Generator[Any, Any, None]


@dataclass(frozen=True)
class FleetSetting:
    """How a fleet serves.

    Attributes:
        knowledge: what its processes know of the load.
        processes: their number; "all" is a fleet of one.
        every_s: seconds between two rounds of a process, which publishes, reads the others and takes orders; and of the global
            loop. With 0 there is a round before each decision and before each call; "all" has that.
        slo_s: the bound on latency of every request.
        risk: how plans weigh the spread of latencies.
        busy: processes, the first ones, to which half of the requests come; None if all get equally many.
        seed: of the process that each request comes to, and of the times of the rounds.
    """

    knowledge: Knowledge
    processes: int = 16
    every_s: float = 0.25
    slo_s: float = SLO_S
    risk: Literal["mean", "mean+sd", "dp"] = "dp"
    busy: int | None = None
    seed: int = 0

    @property
    def as_served(self) -> FleetSetting:
        """The same with what its knowledge implies."""
        return replace(self, knowledge="fleet", processes=1, every_s=0.0, busy=None) if self.knowledge == "all" else self


@dataclass(frozen=True, eq=False)
class RequestFigures:
    """Per-request results, shape (requests,), in the order of the arrivals."""

    latency_s: FloatArray
    is_right: FloatArray
    cost_usd: FloatArray


class VirtualTime:
    """The simulation's clock."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env

    def now(self) -> float:
        """Return the virtual seconds since the start."""
        return float(self._env.now)

    def sleep(self, seconds: float) -> None:
        """Never called: what waits in the simulation waits for an event."""
        raise NotImplementedError("virtual time passes between events only")


def serve_all(workload: FleetWorkload, table: RecordedTable, arrivals_s: FloatArray, setting: FleetSetting) -> RequestFigures:
    """Serve the requests of a table, the i-th from ``arrivals_s[i]`` on."""
    return _FleetSimulation(workload, table, arrivals_s, setting.as_served).result()


def _shares(setting: FleetSetting) -> FloatArray:
    """The share of requests that each process gets."""
    every, busy = setting.processes, setting.busy
    if busy is None:
        return np.full(every, 1.0 / every)
    return np.repeat([0.5 / busy, 0.5 / (every - busy)], [busy, every - busy])


class _FleetSimulation:
    def __init__(self, workload: FleetWorkload, table: RecordedTable, arrivals_s: FloatArray, setting: FleetSetting) -> None:
        self.workload, self.table, self.setting = workload, table, setting
        self.env = simpy.Environment()
        self.slots = {name: simpy.PriorityResource(self.env, engine.slots) for name, engine in workload.engines.items()}
        clock, link = VirtualTime(self.env), MemoryLink()
        self.processes = [ServingProcess(i, workload, clock, link) for i in range(setting.processes)]
        self.leader = Leader(link, POLICY, clock) if setting.knowledge == "fleet" else None
        self.objective = Objective(maximize="accuracy", max_latency_s=setting.slo_s, risk=setting.risk)
        rng = np.random.default_rng([setting.seed, 29])
        size = len(arrivals_s)
        self.latency, self.cost, self.right = np.zeros(size), np.zeros(size), np.zeros(size)
        self.open = size
        comes_to = rng.choice(setting.processes, size, p=_shares(setting)).tolist()
        for row, (at, process) in enumerate(zip(arrivals_s.tolist(), comes_to, strict=True)):
            self.env.process(self._request(row, at, self.processes[process]))
        if setting.knowledge == "own x n":
            for process in self.processes:
                process.suppose_others(setting.processes)
        if setting.knowledge in ("summaries", "fleet"):
            self._join(rng)

    def _join(self, rng: np.random.Generator) -> None:
        """Make a fleet of the processes; the rounds of each begin at a time of their own."""
        for process in self.processes:
            process.see_others()
        if self.setting.every_s > 0:
            rounds = [process.member.round for process in self.processes]
            for round_ in rounds if self.leader is None else (*rounds, self.leader.round):
                self.env.process(self._rounds(round_, float(rng.uniform(0.0, self.setting.every_s))))

    def _hear(self) -> None:
        """Without a delay, a plan is made with what all processes know at this moment."""
        if self.setting.every_s == 0 and len(self.processes) > 1:  # a process alone has nobody to hear of
            for process in (*self.processes, *self.processes):  # all publish before all have read
                process.member.round()

    def _obey(self, process: ServingProcess) -> None:
        """Without a delay, a call is sent with orders that know it."""
        if self.setting.every_s == 0 and self.leader is not None:
            process.member.round()  # publishes
            self.leader.round()
            process.member.round()  # takes the orders

    def result(self) -> RequestFigures:
        while self.open:
            self.env.step()
        return RequestFigures(self.latency, self.right, self.cost)

    def _request(self, row: int, at_s: float, process: ServingProcess) -> Steps:
        yield self.env.timeout(at_s)
        table, session = self.table, process.session(row, self.objective)
        node, prefix, cost = 0, (), 0.0
        for stage in table.template.invocations:
            self._hear()
            model = session.next_model(stage.name, prefix)
            self._obey(process)
            prefix, node = (*prefix, model), table.trie.child(node, model)
            began, usd = self.env.now, float(table.cost_usd[row, node])
            with process.call(session, stage.name, prefix) as (engine, key):
                yield from self._on(engine, float(table.latency_s[row, node]), key)
            took, cost = float(self.env.now - began), cost + usd
            usage = Usage(model=model, cost_usd=usd, latency_s=took)
            session.record(Invocation(stage=stage.name, prefix=prefix, latency_s=took, usages=(usage,)))
            ended = bool(table.ended[row, node])
            if not session.should_continue(prefix, ended, ended):
                break
        self.latency[row], self.cost[row], self.right[row] = self.env.now - at_s, cost, table.success[row, node]
        self.open -= 1

    def _on(self, engine: str, base_s: float, key: float) -> Steps:
        """One call on one engine; it takes longer the more run beside it when it starts, as in `bench_slo.py`.

        The engine serves the least key first, as servers do that take the priority of a call.
        """
        slots, slope = self.slots[engine], self.workload.engines[engine].slope
        with slots.request(priority=key) as turn:
            yield turn
            yield self.env.timeout(base_s * (1.0 + slope * (slots.count - 1)))

    def _rounds(self, round_: Callable[[], object], first_s: float) -> Steps:
        yield self.env.timeout(first_s)
        while True:
            round_()
            yield self.env.timeout(self.setting.every_s)
