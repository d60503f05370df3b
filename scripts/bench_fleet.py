"""What a fleet costs: snapshots of many processes through a real Redis, a decision beside them, an invocation that is told.

- *snapshots*: 64 publishers in 4 processes, 2,048 live invocations each, every 250 ms; the time of one round of a publisher,
  and of one view over all 131,072. ``_cpu_`` is processor time of the reader, which other programs do not change.
- *decision*: what a plan reads of the others' load (``InFlightLoadMonitor.delays``), beside 1,024 and 131,072 live invocations
  of others; processor time. *One level* has no summaries: each decision counts the rows of the view by engine, in NumPy.
- *invocation*: processor time that ``fleet=`` adds to an invocation of a graph that does nothing else, in the thread that
  serves it: the first quartiles over alternating rounds with and without.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
import uuid
from collections.abc import Callable
from typing import Any, TypedDict

import numpy as np
from planner_tries import synthetic
from redis_for_bench import redis_at
from result_files import add_results_option, provenance, write_results
from stage_overhead import SilentBackend

from vinelm import VineLM
from vinelm.controller import (
    FleetConfig,
    FleetMember,
    FleetReader,
    FleetView,
    InFlightLoadMonitor,
    InvocationStart,
    LiveInvocations,
    RedisLink,
    SlowdownCurve,
)
from vinelm.objective import Objective

PROCESSES, PUBLISHERS, ROWS = 4, 16, 2048
"""Processes, publishers in each, live invocations of each publisher."""
ENGINES = tuple(f"engine-{i}" for i in range(16))
EVERY_S = 0.25


def live_rows(process: str, rows: int, seed: int) -> LiveInvocations:
    """A table of live invocations as a busy process has it."""
    live, rng = LiveInvocations(process), np.random.default_rng(seed)
    for i in range(rows):
        engine, waited = ENGINES[int(rng.integers(len(ENGINES)))], float(rng.exponential(2.0))
        start = InvocationStart(
            session=int(rng.integers(2**63)),
            tenant=f"tenant-{int(rng.integers(20))}",
            stage=f"stage-{i % 4}",
            node=int(rng.integers(100_000)),
            engine=engine,
            elapsed_s=waited,
            deadline_s=30.0,
            rest_s=float(rng.exponential(5.0)),
            rest_usd=float(rng.exponential(0.01)),
        )
        slot = live.begin(start)
        if rng.random() < 0.3:
            live.queue(slot)
    return live


def publish_all(url: str, name: str, process: int, *, stop: Any, ready: Any, times: Any) -> None:
    """One process: publish for its publishers every 250 ms until told to stop; then hand over the times in seconds."""
    members = []
    for i in range(PUBLISHERS):
        number = process * PUBLISHERS + i
        members.append(FleetMember(RedisLink(url, name), live_rows(f"p{number:03}", ROWS, number)))
    took = []
    while not stop.is_set():
        began = time.perf_counter()
        for member in members:
            before = time.perf_counter()
            member.round()
            took.append(time.perf_counter() - before)
        ready.set()
        stop.wait(max(EVERY_S - (time.perf_counter() - began), 0.0))
    times.put(took)


def snapshots(url: str, views: int) -> tuple[dict[str, float], FleetView]:
    """The times of publishing and of reading, and the last view."""
    name, context = f"bench-{uuid.uuid4().hex[:8]}", multiprocessing.get_context("spawn")
    stop, times = context.Event(), context.Queue()
    ready = [context.Event() for _ in range(PROCESSES)]
    workers = [
        context.Process(
            target=publish_all, args=(url, name, i), kwargs={"stop": stop, "ready": ready[i], "times": times}, daemon=True
        )
        for i in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    for event in ready:
        event.wait()
    reader, took, used = FleetReader(RedisLink(url, name)), [], []
    for _ in range(views):
        before, used_before = time.perf_counter(), time.process_time()
        view = reader.view()
        took.append(time.perf_counter() - before)
        used.append(time.process_time() - used_before)
        time.sleep(EVERY_S)
    stop.set()
    published = [seconds for _ in workers for seconds in times.get()]
    for worker in workers:
        worker.join()
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


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--redis", help="URL of a Redis; by default one of our own is started")
    parser.add_argument("--views", type=int, default=20, help="views to read")
    add_results_option(parser)
    options = parser.parse_args()
    made = provenance(options)
    with redis_at(options.redis) as url:
        found: dict[str, Any] = {}
        found["snapshots"], view = snapshots(url, options.views)
        found["decision"] = decision(view)
        found["invocation"] = invocation(url)
    if options.results:
        write_results(options.results, made, found)
    if options.json:
        print(json.dumps(found))
        return
    for part, figures in found.items():
        for name, value in figures.items():
            print(f"{part:12} {name:28} {value:12.4g}")


if __name__ == "__main__":
    main()
