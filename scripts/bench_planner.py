"""Time of one plan, from 30 to 2.4 million paths, beside a pruned depth-first search (VineLM paper §4.3) and an array scan.

fresh_median_us: with an objective made anew for each request, as a service does. median_us: with one that was used before.

Tries that branch are planned over by backward induction; python_us is the same induction node by node in plain Python, and
path_us a plan over a linear trie of about the same size.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from datetime import date
from typing import TypedDict

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.api import VineLM
from vinelm.catalog import Catalog, Model, Price
from vinelm.controller import Planner, PlanRequest, SubtreeView, load_array
from vinelm.objective import Objective
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.trie import Trie

SHAPES = ((2, 4), (8, 3), (4, 6), (8, 5), (8, 6), (8, 7))
BRANCHING = ((4, 3, 1_000), (8, 3, 30_000), (4, 6, 1_000_000))
"""Models, turns of the branching loop, and nodes in round figures."""
KINDS = ("min cost | A", "max A | T", "max A | C", "max A | C, T")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--max-nodes", type=int, default=3_000_000)
    parser.add_argument("--queries", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = []
    for n_models, depth in SHAPES:
        if sum(n_models**k for k in range(1, depth + 1)) > options.max_nodes:
            continue
        annotated = synthetic(n_models, depth, options.seed)
        for kind in KINDS:
            rows.extend(bench(annotated, kind, options))
            if not options.json:
                for row in rows[-2:]:
                    print_row(row)
    branching = [
        row
        for n_models, turns, size in BRANCHING
        if size <= options.max_nodes
        for row in bench_branching(n_models, turns, options)
    ]
    overhead = stage_overhead()
    if options.json:
        print(json.dumps({"replans": rows, "branching": branching, **overhead}))
    else:
        print_branching(branching)
        print(", ".join(f"{name} {value:.0f}" for name, value in overhead.items()))
    return 0


def print_row(row):
    if row["nodes"] == 30 and row["objective"] == KINDS[0] and not row["loaded_engines"]:
        print(
            f"{'nodes':>9} {'objective':14} loaded fresh_us reused_us    p99 (cpu)  step_us    p99  none fits    dfs_us"
            "  slice_us  build_s bytes/node"
        )
    plans = " ".join(f"{row[name]:{width}.{digits}f}" for name, width, digits in (
        ("fresh_median_us", 8, 1), ("median_us", 9, 1), ("p99_us", 6, 0), ("p99_cpu_us", 5, 0),
        ("step_median_us", 8, 1), ("step_p99_us", 6, 0),
        ("infeasible_us", 10, 1), ("python_dfs_us", 9, 0), ("numpy_slice_us", 9, 0), ("build_s", 8, 2),
        ("bytes_per_node", 10, 1),
    ))  # fmt: skip
    print(f"{row['nodes']:9,} {row['objective']:14} {row['loaded_engines']:6} {plans}")


def synthetic(n_models: int, depth: int, seed: int) -> AnnotatedTrie:
    """A full trie under the oracle stop. Expensive models are more accurate and slower; every prefix has its own noise, and a
    model that runs again helps less.
    """
    rng = np.random.default_rng(seed)
    names = tuple(f"m{i}" for i in range(n_models))
    price = Price(input=1, output=1, source="made up", as_of=date(2026, 1, 1))
    catalog = Catalog(Model(name=n, provider="simulated", model_id=n, engine=f"e{i}", price=price) for i, n in enumerate(names))
    template = Template((Stage("first", names), Loop((Stage("again", names),), depth - 1)), "oracle")
    trie = Trie.from_template(template)
    size = len(trie)
    skill = np.linspace(0.25, 0.6, n_models)
    success = skill[trie.model] * np.where(trie.depth > 1, 0.6, 1.0) * rng.uniform(0.7, 1.3, size)
    up = np.maximum(trie.parent, 0)
    success = np.where((trie.model == trie.model[up]) & (trie.depth > 1), 0.4 * success, success)
    cost = (0.0005 * 2.0 ** np.arange(n_models))[trie.model] * rng.lognormal(0, 0.2, size)
    latency = (0.8 * 1.3 ** np.arange(n_models))[trie.model] * rng.lognormal(0, 0.25, size)
    for values in (success, cost, latency):
        values[0] = 0.0
    zeros = np.zeros(size)
    return AnnotatedTrie(
        trie, template, catalog, success, success, success, cost, zeros, latency, zeros, meta={"estimator": "made up"}
    )


def objectives(annotated: AnnotatedTrie, kind: str, count: int, rng) -> list[Objective]:
    """Objectives whose bounds lie between tight and loose."""
    accuracy, cost, latency = (
        np.quantile(values[1:], np.linspace(0.02, 0.98, 97))
        for values in (annotated.accuracy, annotated.path_cost_usd, annotated.path_latency_s)
    )
    made = []
    for _ in range(count):
        a, c, t = (float(rng.choice(values)) for values in (accuracy, cost, latency))
        made.append(
            {
                "min cost | A": lambda a=a: Objective(minimize="cost", min_accuracy=a),
                "max A | T": lambda t=t: Objective(maximize="accuracy", max_latency_s=t),
                "max A | C": lambda c=c: Objective(maximize="accuracy", max_cost_usd=c),
                "max A | C, T": lambda c=c, t=t: Objective(maximize="accuracy", max_cost_usd=c, max_latency_s=t),
            }[kind]()
        )
    return made


def bench(annotated: AnnotatedTrie, kind: str, options) -> list[dict[str, object]]:
    rng = np.random.default_rng(options.seed + 1)
    asked = objectives(annotated, kind, options.queries, rng)
    planner = Planner(annotated)
    started = time.perf_counter()
    planner.prepare(asked[0])
    build_s = time.perf_counter() - started
    rows = []
    for is_loaded in (False, True):
        loads = [
            {f"e{i}": float(s) for i, s in enumerate(rng.exponential(0.3, 8))} if is_loaded else None
            for _ in range(options.queries)
        ]
        root_us, cpu_us, step_us, feasible = replans(planner, asked, loads, rng)
        few = max(2, min(options.queries, 400_000 // len(annotated.trie)))
        rows.append(
            {
                "nodes": annotated.trie.n_nodes,
                "objective": kind,
                "loaded_engines": 8 if is_loaded else 0,
                "feasible": feasible,
                "infeasible_us": infeasible_time(planner, impossible(annotated, kind), loads),
                "fresh_median_us": fresh_time(planner, asked, loads),
                "median_us": statistics.median(root_us),
                "p99_us": float(np.quantile(root_us, 0.99)),
                "p99_cpu_us": float(np.quantile(cpu_us, 0.99)),
                "step_median_us": statistics.median(step_us),
                "step_p99_us": float(np.quantile(step_us, 0.99)),
                "build_s": build_s,
                "bytes_per_node": planner.index_bytes / annotated.trie.n_nodes,
                "ends_kept": planner.index_ends,
                "python_dfs_us": dfs_time(annotated, asked[:few], loads[:few]),
                "numpy_slice_us": slice_time(planner, asked[:few], loads[:few]),
            }
        )
    return rows


def branching_trie(n_models: int, turns: int, seed: int) -> AnnotatedTrie:
    """A full trie of an agent that searches or thinks in each turn. Expensive models are more accurate and slower."""
    rng = np.random.default_rng(seed)
    names = tuple(f"m{i}" for i in range(n_models))
    price = Price(input=1, output=1, source="made up", as_of=date(2026, 1, 1))
    catalog = Catalog(Model(name=n, provider="simulated", model_id=n, engine=f"e{i}", price=price) for i, n in enumerate(names))
    arms = Branch({"search": (Stage("search"),), "think": (Stage("think"),)})
    template = Template((Stage("plan"), Loop((arms,), turns))).bind(names)
    trie = Trie.from_template(template)
    size, up = len(trie), np.maximum(trie.parent, 0)
    success = np.linspace(0.25, 0.6, n_models)[trie.model] * rng.uniform(0.7, 1.3, size)
    stop = np.where(trie.is_leaf, 1.0, rng.uniform(0.0, 0.3, size))
    success[0] = stop[0] = 0.0
    ended = success * stop
    likes = rng.uniform(0.2, 0.8, size)
    share = np.where(trie.depth == 1, 1.0, np.where(trie.stage == trie.stages.index("search"), likes[up], 1.0 - likes[up]))
    arm, right = (1.0 - stop)[up] * share, (success - ended)[up] * share
    arm[0], right[0] = 1.0, 0.0
    cost = (0.0005 * 2.0 ** np.arange(n_models))[trie.model] * rng.lognormal(0, 0.2, size)
    latency = (0.8 * 1.3 ** np.arange(n_models))[trie.model] * rng.lognormal(0, 0.25, size)
    cost[0] = latency[0] = 0.0
    zeros = np.zeros(size)
    return AnnotatedTrie(
        trie, template, catalog, success, stop, ended, cost, zeros, latency, zeros, arm=arm, arm_success=right,
        meta={"estimator": "made up"},
    )  # fmt: skip


def bench_branching(n_models: int, turns: int, options) -> list[dict[str, object]]:
    """Plans at the root of a trie that branches: without a clock, with time left, and with time left and load."""
    annotated = branching_trie(n_models, turns, options.seed)
    rng = np.random.default_rng(options.seed + 1)
    planner = Planner(annotated)
    dearest = planner.plan(Objective(maximize="accuracy")).plan
    budgets = [Objective(maximize="accuracy", max_cost_usd=float(u) * dearest.cost_usd) for u in rng.uniform(0.1, 0.9, 8)]
    started = time.perf_counter()
    for objective in budgets:
        planner.plan(objective)
    first_ms = (time.perf_counter() - started) / len(budgets) * 1000
    timed = [Objective(maximize="accuracy", max_latency_s=float(u) * dearest.latency_s) for u in rng.uniform(0.2, 0.9, 8)]
    load = {f"e{i}": float(s) for i, s in enumerate(rng.exponential(0.3, n_models))}
    count = max(8, min(options.queries, 20_000_000 // len(annotated.trie)))
    rows: list[dict[str, object]] = []
    for kind, asked, extra in (("max A | C", budgets, None), ("max A | T", timed, None), ("max A | T, load", timed, load)):
        wall_us, cpu_us = [], []
        for i in range(count):
            before_cpu, before = time.thread_time_ns(), time.perf_counter_ns()
            planner.plan(asked[i % len(asked)], load=extra)
            wall_us.append((time.perf_counter_ns() - before) / 1000)
            cpu_us.append((time.thread_time_ns() - before_cpu) / 1000)
        few = 8 if len(annotated.trie) < 100_000 else 2
        rows.append(
            {
                "nodes": annotated.trie.n_nodes,
                "objective": kind,
                "median_us": statistics.median(wall_us),
                "median_cpu_us": statistics.median(cpu_us),
                "p99_us": float(np.quantile(wall_us, 0.99)),
                "first_plan_ms": first_ms if extra is None and asked is budgets else None,
                "python_us": None if asked is budgets else python_induction_time(annotated, asked[:few], extra),
            }
        )
    path_us = path_time(annotated.trie.n_nodes, options)
    return [row | {"path_us": path_us} for row in rows]


def path_time(nodes: int, options) -> float:
    """Median microseconds of a plan within a budget over the linear trie whose size is the nearest."""
    n_models, depth = min(SHAPES, key=lambda shape: abs(sum(shape[0] ** k for k in range(1, shape[1] + 1)) - nodes))
    annotated = synthetic(n_models, depth, options.seed)
    planner = Planner(annotated)
    asked = objectives(annotated, "max A | C", 100, np.random.default_rng(options.seed))
    planner.prepare(asked[0])
    return fresh_time(planner, asked * 2, [None] * 200)


def python_induction_time(annotated: AnnotatedTrie, asked, load) -> float:
    """Median microseconds of backward induction node by node in plain Python, with the time left carried down."""
    induction, planner = PythonInduction(annotated), Planner(annotated)
    times = []
    for objective in asked:
        before = time.perf_counter_ns()
        value = induction.value(objective.max_latency_s, load)
        times.append((time.perf_counter_ns() - before) / 1000)
        assert abs(value - planner.plan(objective, load=load).accuracy) < 1e-9
    return statistics.median(times)


class PythonInduction:
    """The accuracy of the best contingent plan within a deadline, by recursion over the nodes."""

    def __init__(self, annotated: AnnotatedTrie) -> None:
        trie = annotated.trie
        self.children = [list(trie.arms(node).values()) for node in range(len(trie))]
        self.latency, self.ended = annotated.latency_s.tolist(), annotated.stop_success.tolist()
        self.arm, self.right = annotated.arm.tolist(), annotated.arm_success.tolist()
        self.engine, self.engines = annotated.engine.tolist(), annotated.engines

    def value(self, left_s: float, load) -> float:
        """Accuracy of the best plan from the root on."""
        self.delay = [load[name] for name in self.engines] if load else [0.0] * len(self.engines)
        return self._below(0, left_s, may_end=False)

    def _below(self, node: int, left_s: float, *, may_end: bool = True) -> float:
        total = self.ended[node]
        for arm in self.children[node]:
            best = self.right[arm[0]] if may_end else 0.0
            for child in arm:
                left = left_s - self.latency[child] - self.delay[self.engine[child]]
                if left >= 0.0:
                    value = self.arm[child] * self._below(child, left)
                    best = max(value, best)
            total += best
        return total


def print_branching(rows) -> None:
    print(f"{'nodes':>9} {'branching':16} median_us   p99_us  (cpu)  python_us  path_us  first_ms")
    for row in rows:
        python = "-" if row["python_us"] is None else f"{row['python_us']:.0f}"
        first = "-" if row["first_plan_ms"] is None else f"{row['first_plan_ms']:.0f}"
        print(
            f"{row['nodes']:9,} {row['objective']:16} {row['median_us']:9.1f} {row['p99_us']:8.0f} {row['median_cpu_us']:6.0f}"
            f" {python:>10} {row['path_us']:8.1f} {first:>9}"
        )


def impossible(annotated: AnnotatedTrie, kind: str) -> Objective:
    """An infeasible objective of that kind: no path meets its last bound; half of them meet the other one."""
    cost = float(np.median(annotated.path_cost_usd))
    highest, least_usd, least_s = (
        float(value)
        for value in (annotated.accuracy.max(), annotated.path_cost_usd[1:].min(), annotated.path_latency_s[1:].min())
    )
    return {
        "min cost | A": Objective(minimize="cost", min_accuracy=(1.0 + highest) / 2),
        "max A | T": Objective(maximize="accuracy", max_latency_s=least_s / 2),
        "max A | C": Objective(maximize="accuracy", max_cost_usd=least_usd / 2),
        "max A | C, T": Objective(maximize="accuracy", max_cost_usd=cost, max_latency_s=least_s / 2),
    }[kind]


def fresh_time(planner, asked, loads) -> float:
    """Median microseconds of a feasible plan at the root, each with a new objective that equals an earlier one."""
    times = []
    for objective, load in zip(asked, loads, strict=True):
        fresh = replace(objective)
        before = time.perf_counter_ns()
        decision = planner.plan(fresh, load=load)
        after = time.perf_counter_ns()
        if decision.is_feasible:
            times.append((after - before) / 1000)
    return statistics.median(times)


def infeasible_time(planner, objective, loads) -> float:
    times = []
    for load in loads:
        before = time.perf_counter_ns()
        decision = planner.plan(objective, load=load)
        times.append((time.perf_counter_ns() - before) / 1000)
        assert not decision.is_feasible
    return statistics.median(times)


def replans(planner, asked, loads, rng):
    """Microseconds of each plan at the root by the wall clock and of the processor, the mean wall time over each request's
    steps, and the share of feasible requests. On a busy machine the slowest wall times are due to the scheduler.
    """
    for _ in range(2):  # the first pass builds what prepare() leaves to the first request
        root_us, cpu_us, step_us, feasible = [], [], [], 0
        for objective, load in zip(asked, loads, strict=True):
            node, elapsed, steps = 0, 0.0, []
            while True:
                before_cpu = time.thread_time_ns()
                before = time.perf_counter_ns()
                decision = planner.plan(objective, node=node, elapsed_s=elapsed, load=load)
                steps.append((time.perf_counter_ns() - before) / 1000)
                cpu = (time.thread_time_ns() - before_cpu) / 1000
                if node == 0:
                    if not decision.is_feasible:
                        break
                    feasible += 1
                    root_us.append(steps[0])
                    cpu_us.append(cpu)
                if decision.stop or not decision.is_feasible:
                    break
                node = planner.trie.child(node, decision.next_model)
                elapsed += float(planner.annotated.latency_s[node]) * float(rng.lognormal(-0.03, 0.25))
            if decision.is_feasible or len(steps) > 1:
                step_us.append(statistics.mean(steps))
    return root_us, cpu_us, step_us, feasible / len(asked)


def stage_overhead(rounds: int = 60, per_round: int = 20) -> dict[str, float]:
    """What a session with two bounds, a wall clock and a load monitor adds to each invocation of a LangGraph graph that does
    nothing else: medians of processor time over alternating rounds with the bare graph, 584 paths.
    """
    from langgraph.graph import END, START, StateGraph

    annotated = synthetic(8, 3, 0)
    vine = VineLM(annotated.catalog, {"simulated": SilentBackend()}, trie=annotated)

    def first(state: State, model=None):
        return {"turns": 1}

    def again(state: State, model=None):
        return {"turns": state["turns"] + 1}

    def finished(state: State) -> bool:
        return state["turns"] >= 3

    def build(wrap, route):
        graph = StateGraph(State)
        graph.add_node("first", wrap("first", first))
        graph.add_node("again", wrap("again", again))
        graph.add_edge(START, "first")
        for node in ("first", "again"):
            graph.add_conditional_edges(node, route(finished, again="again", end=END), ["again", END])
        return graph.compile()

    def bare_route(fn, *, again, end):
        def route(state: State):
            return end if fn(state) else again

        return route

    def bare_stage(name, fn):
        def node(state: State):
            return fn(state)

        return node

    bare, served = build(bare_stage, bare_route), build(vine.stage, vine.route)
    objective = Objective(maximize="accuracy", max_latency_s=60.0, max_cost_usd=1.0)
    judged = {"judge": lambda state: state["turns"] >= 3}

    def run(app, context):
        before = time.process_time_ns()
        for _ in range(per_round):
            state = app.invoke({"turns": 0}, context=context() if context else None)
            assert state["turns"] == 3
        return (time.process_time_ns() - before) / per_round / 3 / 1000

    def context():
        return vine.context(policy=vine.session(objective, **judged))

    times = [(run(bare, None), run(served, context)) for _ in range(rounds)]
    bare_us = statistics.median(one for one, _ in times)
    served_us = statistics.median(other for _, other in times)
    return {"bare_stage_us": bare_us, "served_stage_us": served_us, "stage_overhead_us": served_us - bare_us}


class State(TypedDict):
    """Counts invocations."""

    turns: int


class SilentBackend:
    """Makes models that are never called."""

    is_simulated = True
    is_virtual_time = False

    def chat_model(self, model, call):
        """Nothing to call."""
        return None


def slice_time(planner, asked, loads) -> float:
    times = []
    for objective, load in zip(asked, loads, strict=True):
        before = time.perf_counter_ns()
        view = SubtreeView(
            planner.metrics, PlanRequest(objective, 0, 0.0, 0.0, load_array(load, planner.annotated.engines), None, True)
        )
        view.choose()
        times.append((time.perf_counter_ns() - before) / 1000)
    return statistics.median(times)


def dfs_time(annotated, asked, loads) -> float:
    search = PrunedSearch(annotated)
    times = []
    for objective, load in zip(asked, loads, strict=True):
        before = time.perf_counter_ns()
        search.best(objective, load)
        times.append((time.perf_counter_ns() - before) / 1000)
    return statistics.median(times)


class PrunedSearch:
    """VineLM paper §4.3 in plain Python: prune where a cap is exceeded, the floor is met, or the incumbent costs less."""

    def __init__(self, annotated: AnnotatedTrie) -> None:
        self.end = annotated.trie.end.tolist()
        self.accuracy = annotated.accuracy.tolist()
        self.cost = annotated.path_cost_usd.tolist()
        self.latency = annotated.path_latency_s.tolist()
        self.engine = annotated.engine.tolist()
        self.parent = annotated.trie.parent.tolist()
        self.engines = annotated.engines

    def best(self, objective: Objective, load) -> int:
        """The node that the search finds; 0 if there is none."""
        delay = [load[name] for name in self.engines] if load else [0.0] * len(self.engines)
        extra = {0: 0.0}
        floor = objective.min_accuracy
        max_s = float("inf") if objective.max_latency_s is None else objective.max_latency_s
        max_usd = float("inf") if objective.max_cost_usd is None else objective.max_cost_usd
        best, best_accuracy, best_cost = 0, -1.0, float("inf")
        at, last = 1, len(self.end)
        while at < last:
            extra[at] = extra[self.parent[at]] + delay[self.engine[at]]
            cost = self.cost[at]
            if self.latency[at] + extra[at] > max_s or cost > max_usd or (floor is not None and cost >= best_cost):
                at = self.end[at]
                continue
            if floor is not None:
                if self.accuracy[at] >= floor:
                    best, best_cost = at, cost
                    at = self.end[at]
                    continue
            elif self.accuracy[at] > best_accuracy:
                best, best_accuracy = at, self.accuracy[at]
            at += 1
        return best


if __name__ == "__main__":
    sys.exit(main())
