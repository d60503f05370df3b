"""A discrete-event simulation of shared engines: queues, slowdown, other people's traffic, and any policy on top (§5.4).

Nothing here is measured on a real engine. Needs simpy (the extra ``sim``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.controller import Planner, ReportedLoadMonitor, SlowdownCurve, fit_slowdown
from vinelm.errors import ConfigError
from vinelm.evaluation.replay import Replayed
from vinelm.objective import Objective
from vinelm.recorded_table import RecordedTable
from vinelm.trie import FloatArray

Process = Generator[Any, Any, None]
CALIBRATION = (0, 1, 2, 4, 8, 16, 32)
"""Other requests in the engine at which its slowdown is measured (§5.4)."""


@dataclass(frozen=True, slots=True)
class Engine:
    """``slots`` requests run at once, the others wait in line. A running request takes 1 + ``slope`` x (others running) times
    as long. Other people's requests arrive as a Poisson process and take log-normal times.
    """

    name: str
    slots: int
    slope: float
    others_per_s: float = 0.0
    others_mean_s: float = 1.0


Chooser = Callable[[int, float, float, Mapping[str, float]], str | None]
"""(node, elapsed_s, spent_usd, load by engine) to the next model, None to end."""


def planned(planner: Planner, objective: Objective, *, has_load: bool = True) -> Chooser:
    """Replans after every invocation; without ``has_load`` it does not look at the engines (§5.4's load-unaware policy)."""

    def choose(node: int, elapsed_s: float, spent_usd: float, load: Mapping[str, float]) -> str | None:
        decision = planner.plan(objective, node=node, elapsed_s=elapsed_s, spent_usd=spent_usd, load=load if has_load else None)
        return decision.next_model

    return choose


def static(path: Sequence[str], planner: Planner) -> Chooser:
    """Follows one path and ends at its last model."""
    nodes = [0, *planner.trie.path(planner.trie.node(path))]
    follow = dict(zip(nodes, [*path, None], strict=True))
    return lambda node, elapsed_s, spent_usd, load: follow[node]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a simulation runs in. ``load_age_s``: engines report so often; None: just before every decision.

    ``has_correction``: old reports are corrected by our own dispatches since.
    """

    engines: tuple[Engine, ...]
    curves: Mapping[str, SlowdownCurve]
    load_age_s: float | None = None
    has_correction: bool = True
    seed: int = 0


def simulate(table: RecordedTable, arrivals_s: npt.ArrayLike, choose: Chooser, setting: Setting) -> Replayed:
    """Request i of the table arrives at ``arrivals_s[i]``; what each showed, ``latency_s`` counted from its arrival.

    The table's latencies are those of an empty engine. Deterministic per seed. :class:`ConfigError` without simpy, or where an
    engine of the catalog is not simulated.
    """
    return _Run(table, np.asarray(arrivals_s, np.float64), choose, setting).result()


def calibrate(engine: Engine, base_s: Sequence[float], *, repeats: int = 50, seed: int = 0) -> SlowdownCurve:
    """The engine's slowdown curve by the paper's experiment: one request behind N others sent just before, for each N.

    ``base_s`` are zero-load times to draw from.
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


class _Run:
    def __init__(self, table: RecordedTable, arrivals_s: FloatArray, choose: Chooser, setting: Setting) -> None:
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

    def result(self) -> Replayed:
        while self.open:
            self.env.step()
        rows = np.arange(len(self.node))
        return Replayed(self.table.success[rows, self.node], self.cost, self.latency, self.node, self.table.trie)

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
            node = table.trie.child(node, model)
            name = table.catalog[model].engine
            cost += float(table.cost_usd[row, node])
            self.load.dispatched(name)
            base_s = float(table.latency_s[row, node])
            yield from _serve(self.env, self.slots[name], self.engines[name], base_s, [])
            self.load.finished(name, None)
        self.latency[row], self.cost[row], self.node[row] = self.env.now - at_s, cost, node
        self.open -= 1

    def _others(self, engine: Engine) -> Process:
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


def _serve(env: Any, slots: Any, engine: Engine, base_s: float, done: list[float]) -> Process:
    """One invocation on one engine; the time it took goes to ``done``."""
    came = env.now
    with slots.request() as turn:
        yield turn
        yield env.timeout(base_s * (1.0 + engine.slope * (slots.count - 1)))
    done.append(env.now - came)


def _simpy() -> Any:
    try:
        import simpy
    except ImportError as error:
        raise ConfigError("the simulator needs simpy: pip install 'vinelm[sim]'") from error
    return simpy
