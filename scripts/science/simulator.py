"""Discrete-event simulation of shared engines: queues, slowdown and background traffic, under any policy (VineLM paper §5.4).

No figure here was measured on a real engine. Needs simpy (extra ``sim``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from science.recorded_table import RecordedTable
from science.replay import ReplayResult

from vinelm.controller import Planner, ReportedLoadMonitor, SlowdownCurve
from vinelm.controller.load.slowdown import fit_slowdown
from vinelm.errors import ConfigError
from vinelm.extras import required_extra
from vinelm.objective import Objective
from vinelm.trie.arrays import FloatArray

Process = Generator[Any, Any, Any]
CALIBRATION = (0, 1, 2, 4, 8, 16, 32)
"""Numbers of background requests at which an engine's slowdown is measured (VineLM paper §5.4)."""


@dataclass(frozen=True, slots=True)
class SimulatedEngine:
    """An engine with a queue, a linear slowdown and background traffic.

    Attributes:
        name: The engine's name in the catalog.
        slots: Requests that run at once; further ones wait in a queue.
        slope: A request takes 1 + slope × (other running requests) times as long.
        others_per_s: Rate of background requests, a Poisson process.
        others_mean_s: Mean zero-load seconds of a background request; log-normal.
    """

    name: str
    slots: int
    slope: float
    others_per_s: float = 0.0
    others_mean_s: float = 1.0


class Hedged(NamedTuple):
    """A call that is made twice: if ``model`` has not answered after so many seconds, ``other`` is asked, too; the first answer
    is taken, and both are paid.
    """

    model: str
    other: str
    after_s: float


ModelChooser = Callable[[int, float, float, Mapping[str, float]], str | Hedged | None]
"""Maps (node, elapsed_s, spent_usd, extra seconds by engine) to the next model; None ends the request."""


def replanning_chooser(planner: Planner, objective: Objective, *, has_load: bool = True) -> ModelChooser:
    """Return a policy that replans after every invocation.

    With ``has_load=False`` it ignores the engines' load: the load-unaware policy of the VineLM paper, §5.4.
    """

    def choose(node: int, elapsed_s: float, spent_usd: float, load: Mapping[str, float]) -> str | None:
        decision = planner.plan(objective, node=node, elapsed_s=elapsed_s, spent_usd=spent_usd, load=load if has_load else None)
        return decision.next_model

    return choose


def static_chooser(path: Sequence[str], planner: Planner) -> ModelChooser:
    """Return a policy that follows one path and ends after its last model."""
    nodes = [0, *planner.trie.path(planner.trie.node(path))]
    follow = dict(zip(nodes, [*path, None], strict=True))
    return lambda node, elapsed_s, spent_usd, load: follow[node]


@dataclass(frozen=True, kw_only=True)
class SimulationSettings:
    """Settings of a simulation.

    Attributes:
        engines: All engines of the catalog.
        curves: Slowdown curve by engine, for load-aware policies.
        load_age_s: Seconds between load reports; None: a fresh report before every decision.
        has_correction: Correct old reports by the calls dispatched since.
        seed: Seed of the background traffic.
    """

    engines: tuple[SimulatedEngine, ...]
    curves: Mapping[str, SlowdownCurve]
    load_age_s: float | None = None
    has_correction: bool = True
    seed: int = 0


def simulate(
    table: RecordedTable, arrivals_s: npt.ArrayLike, choose: ModelChooser, setting: SimulationSettings
) -> ReplayResult:
    """Simulate the requests of a table on shared engines. Deterministic for a given seed.

    Args:
        table: Recorded outcomes; their latencies count as zero-load latencies.
        arrivals_s: Arrival time of each request, shape (requests,).
        choose: The policy.
        setting: Engines, slowdown curves and load reports.

    Returns:
        The results, with ``latency_s`` counted from each request's arrival.

    Raises:
        ConfigError: simpy is not installed, or an engine of the catalog is missing from the settings.
    """
    return _Simulation(table, np.asarray(arrivals_s, np.float64), choose, setting).result()


def simulated_slowdown(engine: SimulatedEngine, base_s: Sequence[float], *, repeats: int = 50, seed: int = 0) -> SlowdownCurve:
    """Measure a simulated engine's slowdown curve: time one request behind N others, for several N (VineLM paper §5.4).

    Args:
        engine: The engine; its own background traffic is not simulated here.
        base_s: Zero-load seconds to draw from.
        repeats: Runs for each N.
        seed: Seed of the draws.
    """
    simpy = _simpy()
    rng = np.random.default_rng(seed)
    counts, took = [], []
    for others in CALIBRATION:
        for _ in range(repeats):
            env = simpy.Environment()
            slots = simpy.Resource(env, engine.slots)
            done: list[float] = []
            for base in rng.choice(base_s, others):
                elapsed = float(rng.uniform(0.0, base))  # the others are anywhere in their work when ours arrives
                env.process(_serve(env, slots, engine, float(base) - elapsed, []))
            env.process(_serve(env, slots, engine, float(np.mean(base_s)), done))
            env.run()
            counts.append(float(others))
            took.append(done[0])
    return fit_slowdown(counts, took)


class _EnvironmentClock:
    def __init__(self, env: Any) -> None:
        self._env = env

    def now(self) -> float:
        return float(self._env.now)

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError("simulated time passes in the simulation only")


class _Simulation:
    def __init__(self, table: RecordedTable, arrivals_s: FloatArray, choose: ModelChooser, setting: SimulationSettings) -> None:
        self.table, self.choose, self.setting = table, choose, setting
        simpy = _simpy()
        self.env = simpy.Environment()
        self.rng = np.random.default_rng(setting.seed)
        self.engines = {engine.name: engine for engine in setting.engines}
        for name in {table.catalog[model].engine for model in table.trie.models}:
            if name not in self.engines:
                raise ConfigError(f"engine {name!r} is not simulated: the setting has {', '.join(self.engines)}")
        self.slots = {name: simpy.Resource(self.env, engine.slots) for name, engine in self.engines.items()}
        self.load = ReportedLoadMonitor(
            setting.curves, clock=_EnvironmentClock(self.env), has_correction=setting.has_correction, gone_after_s=1e9
        )
        size = len(arrivals_s)
        self.latency, self.cost, self.node = np.zeros(size), np.zeros(size), np.zeros(size, np.intp)
        self.open = size
        for row, at in enumerate(arrivals_s.tolist()):
            self.env.process(self._request(row, at))
        for engine in setting.engines:
            if engine.others_per_s > 0:
                self.env.process(self._others(engine))
        if setting.load_age_s is not None:
            self.env.process(self._reports(setting.load_age_s))

    def result(self) -> ReplayResult:
        while self.open:
            self.env.step()
        rows = np.arange(len(self.node))
        return ReplayResult(self.table.success[rows, self.node], self.cost, self.latency, self.node, self.table.trie)

    def _request(self, row: int, at_s: float) -> Process:
        yield self.env.timeout(at_s)
        table, node = self.table, 0
        cost = float(table.cost_usd[row, 0])
        while not (node and table.ended[row, node]):
            if self.setting.load_age_s is None:
                self._report()
            load = {engine: delay.extra_s for engine, delay in self.load.delays().items()}
            model = self.choose(node, float(self.env.now) - at_s, cost, load)
            if model is None:
                break
            hedge = model if isinstance(model, Hedged) else None
            first = table.trie.child(node, hedge.model if hedge else str(model))
            call = self.env.process(self._call(row, first))
            cost += float(table.cost_usd[row, first])
            if hedge is None:
                node = yield call
                continue
            yield call | self.env.timeout(hedge.after_s)
            if call.is_alive:
                second = table.trie.child(node, hedge.other)
                cost += float(table.cost_usd[row, second])
                answered = yield call | self.env.process(self._call(row, second))
                node = next(iter(answered.values()))
            else:
                node = first
        self.latency[row], self.cost[row], self.node[row] = self.env.now - at_s, cost, node
        self.open -= 1

    def _call(self, row: int, node: int) -> Process:
        """One call of a request; returns its node."""
        name = self.table.catalog[self.table.trie.models[int(self.table.trie.model[node])]].engine
        self.load.dispatched(name)
        yield from _serve(self.env, self.slots[name], self.engines[name], float(self.table.latency_s[row, node]), [])
        self.load.finished(name, None)
        return node

    def _others(self, engine: SimulatedEngine) -> Process:
        while True:
            yield self.env.timeout(self.rng.exponential(1.0 / engine.others_per_s))
            base_s = float(self.rng.lognormal(np.log(engine.others_mean_s) - 0.125, 0.5))
            self.env.process(_serve(self.env, self.slots[engine.name], engine, base_s, []))

    def _reports(self, every_s: float) -> Process:
        while True:
            self._report()
            yield self.env.timeout(every_s)

    def _report(self) -> None:
        for name, slots in self.slots.items():
            self.load.report(name, slots.count + len(slots.queue))


def _serve(env: Any, slots: Any, engine: SimulatedEngine, base_s: float, done: list[float]) -> Process:
    """Simulate one invocation on one engine; its duration is appended to ``done``."""
    came = env.now
    with slots.request() as turn:
        yield turn
        yield env.timeout(base_s * (1.0 + engine.slope * (slots.count - 1)))
    done.append(env.now - came)


def _simpy() -> Any:
    with required_extra("sim", "the simulator"):
        import simpy
    return simpy
