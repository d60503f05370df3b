"""What a fleet costs: snapshots of many processes through a real Redis, a decision beside them, an invocation that is told.

- *snapshots*: 64 publishers in 4 processes, 2,048 live invocations each, every 250 ms; the time of one round of a publisher,
  and of one view over all 131,072. ``_cpu_`` is processor time of the reader, which other programs do not change.
- *decision*: what a plan reads of the others' load (``InFlightLoadMonitor.delays``), beside 1,024 and 131,072 live invocations
  of others; processor time. *One level* has no summaries: each decision counts the rows of the view by engine, in NumPy.
- *invocation*: processor time that ``fleet=`` adds to an invocation of a graph that does nothing else, in the thread that
  serves it: the first quartiles over alternating rounds with and without.
- *loop*: one round of the global loop over the same 131,072: read the snapshots, make the view, run the policy
  ``slack+balance+shares``, install the orders.
- *simulation*: 16 processes on simulated engines in virtual time, real arrivals (--data or VINELM_DATA): the rate at which 5 %
  of the answers are late, and P99 latency at the same arrivals, by what a process knows of the load.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypedDict

import numpy as np
from fleet_parts.loop_rounds import loop_rounds
from fleet_parts.publishers import ENGINES, EVERY_S, publishers
from planner_tries import synthetic
from redis_for_bench import redis_at
from stage_overhead import SilentBackend
from studies import Options, study

from vinelm import VineLM
from vinelm.controller import (
    FleetConfig,
    FleetReader,
    FleetView,
    InFlightLoadMonitor,
    RedisLink,
    SlowdownCurve,
)
from vinelm.errors import ConfigError
from vinelm.objective import Objective

PARTS = ("snapshots", "decision", "invocation", "loop", "simulation")


def snapshots(url: str, views: int) -> tuple[dict[str, float], FleetView]:
    """The times of publishing and of reading, and the last view."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with publishers(url, name) as published:
        reader, took, used = FleetReader(RedisLink(url, name)), [], []
        for _ in range(views):
            before, used_before = time.perf_counter(), time.process_time()
            view = reader.view()
            took.append(time.perf_counter() - before)
            used.append(time.process_time() - used_before)
            time.sleep(EVERY_S)
        reader.close()
    return {
        "rows": len(view),
        "processes": len(view.processes),
        "publish_and_read_loads_ms": 1000 * statistics.median(published),
        "view_ms": 1000 * statistics.median(took),
        "view_worst_ms": 1000 * max(took),
        "view_cpu_ms": 1000 * statistics.median(used),
    }, view


def microseconds(variants: dict[str, Callable[[], object]], times: int = 300, repeats: int = 15) -> dict[str, float]:
    """Processor time of each: the least mean over repeats that take turns, so that what else runs matters little."""
    least = dict.fromkeys(variants, float("inf"))
    for _ in range(repeats):
        for name, once in variants.items():
            before = time.thread_time()
            for _ in range(times):
                once()
            least[name] = min(least[name], 1e6 * (time.thread_time() - before) / times)
    return least


def decision(view: FleetView) -> dict[str, float]:
    """What reading the others' load costs a decision, beside few and many live invocations, with and without summaries."""
    curves = {engine: SlowdownCurve((0.0, 10_000.0), (0.0, 10.0)) for engine in ENGINES}
    variants: dict[str, Callable[[], object]] = {}
    for label, rows in (("1k", view.where(np.arange(len(view)) < 1024)), ("131k", view)):
        counts = {engine: int(n) for engine, n in zip(rows.engines, rows.count_by_engine(), strict=True)}

        def scan(rows: FleetView = rows) -> dict[str, int]:
            return dict(zip(rows.engines, rows.count_by_engine().tolist(), strict=True))

        for kind, others in (("two_level", lambda counts=counts: counts), ("one_level", scan)):
            monitor = InFlightLoadMonitor(curves)
            monitor.others = others
            variants[f"{kind}_{label}_us"] = monitor.delays
    found = microseconds(variants)
    return found | {f"{kind}_ratio": found[f"{kind}_131k_us"] / found[f"{kind}_1k_us"] for kind in ("two_level", "one_level")}


class State(TypedDict):
    """Counts invocations."""

    turns: int


def invocation(url: str, rounds: int = 80, per_round: int = 10) -> dict[str, float]:
    """Processor time of an invocation with and without a fleet, in the thread that serves it."""
    from langgraph.graph import END, START, StateGraph

    annotated = synthetic(8, 3, 0)
    objective = Objective(maximize="accuracy", max_latency_s=60.0, max_cost_usd=1.0)
    judged = {"judge": lambda state: state["turns"] >= 3}

    def serving(fleet: FleetConfig | None) -> tuple[VineLM, Any]:
        vine = VineLM(annotated.catalog, {"simulated": SilentBackend()}, trie=annotated, labelled=True, fleet=fleet)
        graph = StateGraph(State)
        graph.add_node("first", vine.stage("first", lambda state, model: {"turns": 1}, state=State))
        graph.add_node("again", vine.stage("again", lambda state, model: {"turns": state["turns"] + 1}, state=State))
        graph.add_edge(START, "first")
        for node in ("first", "again"):
            route = vine.route(lambda state: state["turns"] >= 3, again="again", end=END)
            graph.add_conditional_edges(node, route, ["again", END])
        return vine, graph.compile()

    def run(vine: VineLM, app: Any) -> float:
        before = time.thread_time_ns()
        for _ in range(per_round):
            app.invoke({"turns": 0}, context=vine.context(policy=vine.session(objective, **judged)))
        return (time.thread_time_ns() - before) / per_round / 3 / 1000

    alone = serving(None)
    fleet = serving(FleetConfig(url=url, name=f"bench-{uuid.uuid4().hex[:8]}"))
    times = [(run(*alone), run(*fleet)) for _ in range(rounds)]
    fleet[0].close()
    bare, told = (statistics.quantiles(column, n=4)[0] for column in zip(*times, strict=True))
    return {"without_us": bare, "with_us": told, "fleet_added_us": told - bare}


def simulation(options: Options, keep: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """What knowing the others' load is worth; needs simpy and SciPy, which the other parts do not.

    ``keep`` is given the figures of the cases so far after each case, so that a run which is ended early leaves something.
    """
    from fleet_parts.simulation import FleetSetting
    from fleet_parts.study import Case, page_figures, simulated
    from fleet_parts.workload import TRACES

    began = time.perf_counter()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    cases = [Case(options.data, trace, seed, options.requests) for seed in seeds for trace in TRACES]
    setting = FleetSetting("fleet")
    about = {"seeds": list(seeds), "requests": options.requests, "processes": setting.processes, "slo_s": setting.slo_s}
    found: dict[str, Any] = {}
    done = []
    for one in simulated(cases, setting, options.workers):
        done.append(one)
        found = {**about, **page_figures(done), "run_s": time.perf_counter() - began}
        keep(found)
    return found


def measured(options: Options) -> dict[str, Any]:
    """The figures of the parts."""
    parts = set(options.parts)
    if "simulation" in parts and options.data is None:
        print("left out: the simulation needs real arrivals: --data DIR or VINELM_DATA=DIR", file=sys.stderr)
        parts.remove("simulation")
    elif "simulation" in parts and not (options.data / "arrivals").is_dir():
        raise ConfigError(f"--data {options.data}: has no folder arrivals")
    found: dict[str, Any] = {"load_average": os.getloadavg()[0]}  # what else ran on the cores when the measurement began
    with redis_at(options.redis) if parts - {"simulation"} else nullcontext("") as url:
        if {"snapshots", "decision"} & parts:
            found["snapshots"], view = snapshots(url, options.views)
        if "decision" in parts:
            found["decision"] = decision(view)
        if "invocation" in parts:
            found["invocation"] = invocation(url)
        if "loop" in parts:
            found["loop"] = loop_rounds(url, options.rounds)
    if "simulation" in parts:
        found["simulation"] = simulation(options, lambda some: options.keep({**found, "simulation": some}))
    return found


def shown(found: dict[str, Any], name: str = "") -> None:
    """Print the figures, one a line."""
    for key, value in found.items():
        if isinstance(value, dict):
            shown(value, f"{name}/{key}")
        elif isinstance(value, int | float):
            print(f"{name + '/' + key:64} {value:12.4g}")
        elif key == "text":
            print(f"{name + '/' + key:64} {value}")


def main() -> int:
    """Print the figures."""
    options = {
        "--parts": (PARTS, "run these only [default: all]", {"choices": PARTS}),
        "--redis": (None, "URL of a Redis; by default one of our own is started"),
        "--views": (20, "views to read"),
        "--rounds": (40, "rounds of the global loop"),
        "--seeds": (3, "of the simulation, for each trace of arrivals"),
        "--first-seed": (0, ""),
        "--requests": (1000, "of each run of the simulation"),
        "--workers": (os.cpu_count(), "processes that simulate [default: all cores]"),
    }
    return study(__doc__, options, measured, shown, data="folder with arrivals/", needs_data=False)


if __name__ == "__main__":
    sys.exit(main())
