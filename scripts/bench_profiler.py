"""Overhead of the profiler per unit in each mode, units per second, rows per second, and what checkpoints save.

Each mode is measured with simulated models (the toy of this file answers at once, or after 200 ms of real time), and fresh
processes, the default, through the openai backend as well: the real SDK against a server in a process of its own
(``local_openai.py``). CPU time per unit is the difference of two runs, so that loading is left out.

The ratios come from a run's ledger and are compared with those computed from the complete table's reach and costs. The paper's
ratios (VineLM paper, Table 2) are printed beside them; they depend on the success rates, so ours differ.
"""

from __future__ import annotations

import hashlib
import json
import math
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict

from local_openai import local_openai
from studies import Options, study

from vinelm.backends import OfflineChatModel
from vinelm.backends.offline.chat_model import request_of
from vinelm.catalog import Catalog, Model, Price
from vinelm.profiler import ExecutionConfig, ProfileSettings, WorkflowSource, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Observation, Usage
from vinelm.template import Loop, Stage, Template
from vinelm.traces import ObservationStore

PAPER = {"8x3": 2.87, "2x4": 2.37, "4x6": 26.8}
"""Naive over checkpointed cost, from checkpoints alone (Table 2 of the paper)."""
SIZES = {"8x3": (8, 3, 12), "2x4": (2, 4, 60), "4x6": (4, 6, 2)}
"""Models, depth, requests."""
SPARSE_COVERAGE = 0.05
SLOW_S = 0.2
DEFAULT_WORKERS = 4


class State(TypedDict, total=False):
    """Of the bench's graph."""

    question: str
    answer: str


def is_right(request_id: str, prefix: tuple[str, ...]) -> bool:
    digest = hashlib.sha256("/".join((request_id, *prefix)).encode()).digest()
    return digest[0] < 256 * (0.3 + 0.05 * int(prefix[-1][1:]))


def cost_of(request_id: str, prefix: tuple[str, ...]) -> float:
    digest = hashlib.sha256("/".join((*prefix, request_id)).encode()).digest()
    return (1 + int(prefix[-1][1:])) * (1 + digest[0] / 256) * len(prefix) ** 0.5 / 1e4


@dataclass
class BenchBackend:
    """Answers at once, or after ``latency_s`` of real time."""

    latency_s: float = 0.0
    is_simulated = True

    @property
    def is_virtual_time(self) -> bool:
        """See :class:`vinelm.requests.protocols.Backend`."""
        return self.latency_s == 0

    def chat_model(self, model: Model, call: Any) -> OfflineChatModel:
        """See :class:`vinelm.requests.protocols.Backend`."""
        return OfflineChatModel.bound(self, model, call)

    def answer(self, model: Model, call: Any, prompt_chars: int) -> tuple[str, Usage]:
        """See :class:`vinelm.backends.offline.chat_model.AnswerSource`."""
        cell = (request_of(call, "bench").id, call.prefix)
        usage = Usage(model=model.name, cost_usd=cost_of(*cell), latency_s=self.latency_s, tokens_in=100, tokens_out=20)
        return ("right" if is_right(*cell) else "wrong"), usage


def generate(state: State, model: Any) -> State:
    return {"answer": model.invoke(f"question {state['question']}").text}


def finished(state: State) -> bool:
    return state["answer"] == "right"


def score(request: Request, state: Any) -> bool:
    return bool(state["answer"] == "right")


def build(vine: Any) -> Any:
    from langgraph.graph import END, START, StateGraph

    graph: Any = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", generate))
    graph.add_node("repair", vine.stage("repair", generate))
    graph.add_edge(START, "generate")
    again = vine.route(finished, again="repair", end=END)
    graph.add_conditional_edges("generate", again, ["repair", END])
    graph.add_conditional_edges("repair", again, ["repair", END])
    return graph


@dataclass(frozen=True)
class Bench:
    """What a child imports."""

    workflow: Workflow
    catalog: Catalog
    backends: dict[str, BenchBackend]


@dataclass(frozen=True)
class LoadedSdk:
    """The same with the openai backend."""

    workflow: Workflow
    catalog: Catalog
    backends: dict[str, Any]


def load_sdk(url: str, requests: int) -> LoadedSdk:
    """The same graph on four models of a server that speaks OpenAI's API."""
    from vinelm.backends import create_backends

    workflow = load(4, 2, requests).workflow
    price = Price(input=1.0, output=4.0, source="made up", as_of="2026-01-01")  # type: ignore[arg-type]
    fields = {"provider": "openai", "api_base": url, "engine": "local", "max_tokens": 100, "price": price}
    catalog = Catalog(Model(name=f"m{i}", model_id=f"model-{i}", **fields) for i in range(4))  # type: ignore[arg-type]
    return LoadedSdk(workflow, catalog, create_backends(catalog, workflow=workflow))


def load(models: int, depth: int, requests: int, latency_s: float = 0.0) -> Bench:
    names = tuple(f"m{i}" for i in range(models))
    workflow = Workflow(
        name="bench",
        template=Template((Stage("generate", names), Loop((Stage("repair", names),), depth - 1))),
        build=build,
        requests=[Request(f"q{i}", {"question": f"number {i}"}) for i in range(requests)],
        score=score,
    )
    price = Price(input=1.0, output=4.0, source="made up", as_of="2026-01-01")  # type: ignore[arg-type]
    catalog = Catalog(
        Model(name=n, provider="bench", model_id="bench", engine="bench", max_tokens=100, price=price) for n in names
    )
    return Bench(workflow, catalog, {"bench": BenchBackend(latency_s)})


# -- measuring -------------------------------------------------------------------------------------------------------


@contextmanager
def new_store(loaded: Bench | LoadedSdk) -> Iterator[ObservationStore]:
    identity = store_identity(loaded.workflow, loaded.catalog, loaded.backends)
    with tempfile.TemporaryDirectory() as folder, ObservationStore.create(Path(folder) / "bench.db", identity) as store:
        yield store


def execution_of(isolation: Any, workers: int, arguments: dict[str, Any]) -> ExecutionConfig:
    return ExecutionConfig(
        isolation=isolation, workers=workers, source=WorkflowSource(function="bench_profiler:load", arguments=arguments)
    )


def run(arguments: dict[str, Any], execution: ExecutionConfig, **settings: Any) -> tuple[list[float], float, Any, float]:
    """(seconds at each row, seconds in all, result, committed dollars)."""
    loaded = load(**arguments)
    with new_store(loaded) as store:
        at: list[float] = []
        result = profile(
            loaded.workflow, loaded.catalog, loaded.backends, store, ProfileSettings(execution=execution,
            on_progress=lambda _: at.append(time.perf_counter()), **settings),
        )  # fmt: skip
        return at, at[-1] - at[0], result, store.committed_usd()


def bare_stage_s() -> float:
    """The stage's own time: its function on its model, without graph, checkpoint, ledger or store."""
    from vinelm.clock import VirtualClock
    from vinelm.requests.protocols import CallContext

    loaded = load(2, 3, 1)
    request, backend = loaded.workflow.requests[0], loaded.backends["bench"]
    times = []
    for _ in range(300):
        call = CallContext(stage="generate", prefix=("m0",), clock=VirtualClock(), on_usage=lambda _: None, request=request)
        started = time.perf_counter()
        generate({"question": "number 0"}, backend.chat_model(loaded.catalog["m0"], call))
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def overhead_ms(isolation: Any, units: int, bare_s: float) -> float:
    """Median time from row to row with one worker, less the stage's own."""
    arguments = {"models": 2, "depth": 3, "requests": units}
    at, _, _, _ = run(arguments, execution_of(isolation, 1, arguments), budget_calls=units)
    return 1000 * (statistics.median(b - a for a, b in pairwise(at)) - bare_s)


def units_per_s(isolation: Any, workers: int, units: int) -> float:
    """With a model that takes 200 ms, start-up and end left out: from the first row to the last but one batch."""
    arguments = {"models": 4, "depth": 2, "requests": 4 * units, "latency_s": SLOW_S}
    at, _, _, _ = run(arguments, execution_of(isolation, workers, arguments), budget_calls=units)
    first, last = len(at) // 3, len(at) - min(workers, len(at) // 4) - 1
    return (last - first) / (at[last] - at[first])


def run_sdk(url: str, units: int, workers: int) -> list[float]:
    """Seconds at each row of a run of fresh processes through the openai backend."""
    arguments = {"url": url, "requests": 4 * units}
    loaded = load_sdk(**arguments)
    source = WorkflowSource(function="bench_profiler:load_sdk", arguments=arguments)
    execution = ExecutionConfig(isolation="process", workers=workers, source=source)
    at: list[float] = []
    with new_store(loaded) as store:
        profile(
            loaded.workflow, loaded.catalog, loaded.backends, store, ProfileSettings(execution=execution, budget_calls=units,
            on_progress=lambda _: at.append(time.perf_counter())),
        )  # fmt: skip
        failed = [row.detail for row in store.observations() if row.failure is not None]
    if failed:
        raise SystemExit(f"{len(failed)} units failed: {failed[0]}")
    return at


def sdk_cpu_ms(url: str, units: int) -> tuple[float, float]:
    """CPU ms per unit with the default number of workers: in the unit's process with its fork, and in the run's own."""
    few, many = units // 5, units
    costs = []
    for n in (few, many):
        before = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
        run_sdk(url, n, DEFAULT_WORKERS)
        after = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
        costs.append([b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime for a, b in zip(before, after, strict=True)])
    in_units, in_run = (1000 * (b - a) / (many - few) for a, b in zip(*costs, strict=True))
    return in_units, in_run


def sdk_units_per_s(url: str, workers: int, units: int) -> float:
    at = run_sdk(url, units, workers)
    first, last = len(at) // 3, len(at) - min(workers, len(at) // 4) - 1
    return (last - first) / (at[last] - at[first])


def sdk_figures(scale: float) -> dict[str, float]:
    with local_openai(0.0) as url:
        in_units, in_run = sdk_cpu_ms(url, max(int(100 * scale), 25))
    with local_openai(SLOW_S) as url:
        speed = sdk_units_per_s(url, 8, max(int(200 * scale), 40))
    return {"sdk_cpu_ms_per_unit": in_units, "sdk_cpu_ms_per_unit_of_the_run": in_run, "sdk_units_per_s_8": speed}


def store_figures(rows: int) -> tuple[float, float, float]:
    """(rows per second one by one, rows per second all at once, seconds to load 100,000 rows)."""
    loaded = load(8, 3, 1)
    observation = {"stage": "generate", "success": True, "stopped": True, "cost_usd": 0.001, "latency_s": 1.0}
    with new_store(loaded) as store:
        started = time.perf_counter()
        for i in range(rows):
            store.add(Observation(request_id=f"s{i}", prefix=("m0",), **observation), b"state" * 50)
        one_by_one = rows / (time.perf_counter() - started)
        many = [Observation(request_id=f"q{i}", prefix=("m0",), **observation) for i in range(100_000 - rows)]
        started = time.perf_counter()
        add_many(store, many)
        together = len(many) / (time.perf_counter() - started)
        started = time.perf_counter()
        assert len(store.observations()) == 100_000
        return one_by_one, together, time.perf_counter() - started


def add_many(store: ObservationStore, rows: list[Observation]) -> None:
    with store.together():
        for row in rows:
            store.add(row)


def ratios(size: str) -> dict[str, float]:
    """Naive over checkpointed, and naive over sparse: as a profile of everything says, and by the table."""
    models, depth, requests = SIZES[size]
    arguments = {"models": models, "depth": depth, "requests": requests}
    inline = execution_of("inline", 1, arguments)
    _, _, whole, shared = run(arguments, inline, sampler="exhaustive")
    sparse = run(arguments, inline, coverage=SPARSE_COVERAGE)[3]
    table_shared, table_naive = table_costs(**arguments)
    return {
        "checkpoint": whole.naive_usd / shared,
        "checkpoint_table": table_naive / table_shared,
        "sparse": whole.naive_usd / sparse,
        "sparse_table": table_naive / sparse,
    }


def table_costs(models: int, depth: int, requests: int) -> tuple[float, float]:
    """Dollars of every reached cell once, and of every leaf path from the root, from reach and costs alone."""
    shared: list[float] = []
    naive: list[float] = []

    def below(request_id: str, prefix: tuple[str, ...]) -> None:
        for i in range(models):
            cell = (*prefix, f"m{i}")
            shared.append(cost_of(request_id, cell))
            naive.append(cost_of(request_id, cell) * models ** (depth - len(cell)))
            if not is_right(request_id, cell) and len(cell) < depth:
                below(request_id, cell)

    for i in range(requests):
        below(f"q{i}", ())
    return math.fsum(shared), math.fsum(naive)


def measure(scale: float, say: Callable[[str], None]) -> dict[str, Any]:
    bare_s = bare_stage_s()
    figures: dict[str, Any] = {"bare_stage_ms": 1000 * bare_s}
    for isolation, units in (("inline", 400), ("thread", 400), ("process", 100)):
        say(f"overhead, {isolation}")
        figures[f"overhead_ms_{isolation}"] = overhead_ms(isolation, max(int(units * scale), 20), bare_s)
    say("openai backend, process")
    figures |= sdk_figures(scale)
    speeds: dict[str, float] = {}
    for isolation, workers in (
        ("inline", 1),
        *((mode, n) for mode in ("thread", "process") for n in (1, 2, 8)),
        ("thread", 64),
    ):
        say(f"units per second, {isolation}, {workers} workers")
        speeds[f"{isolation}_{workers}"] = units_per_s(isolation, workers, max(int(scale * (20 + 20 * workers)), 3 * workers))
    figures["units_per_s"] = speeds
    say("store")
    rows = max(int(2000 * scale), 200)
    figures["store_rows_per_s"], figures["store_rows_per_s_together"], figures["load_100k_rows_s"] = store_figures(rows)
    for size in SIZES:
        say(f"cost ratios, {size}")
        found = ratios(size)
        for kind in ("checkpoint", "sparse"):
            figures.setdefault(f"cost_ratio_{kind}", {})[size] = found[kind]
            figures.setdefault(f"cost_ratio_{kind}_table", {})[size] = found[f"{kind}_table"]
    figures["cost_ratio_checkpoint_paper"] = PAPER
    figures["sparse_coverage"] = SPARSE_COVERAGE
    return figures


def show(figures: dict[str, Any]) -> None:
    print(f"bare stage {figures['bare_stage_ms']:.2f} ms; median added per unit, one worker, model of no latency:")
    for isolation, aim in (("inline", "aim 3"), ("thread", ""), ("process", "a fresh child each; aim 45, reference 35")):
        print(f"  {isolation:<8} {figures[f'overhead_ms_{isolation}']:7.2f} ms  {aim}")
    print(
        f"openai backend, fresh processes: {figures['sdk_cpu_ms_per_unit']:.1f} ms CPU per unit with its fork (aim 40), "
        f"{figures['sdk_cpu_ms_per_unit_of_the_run']:.1f} ms in the run; "
        f"{figures['sdk_units_per_s_8']:.1f} units/s with 8 workers and a model of {SLOW_S:g} s (aim 15, at most 40)"
    )
    print(f"units per second with a model of {SLOW_S:g} s (the most possible: workers / {SLOW_S:g} s):")
    for name, value in figures["units_per_s"].items():
        mode, _, workers = name.partition("_")
        share = value * SLOW_S / int(workers)
        print(f"  {mode:<8} {workers:>2} workers  {value:7.1f}  {100 * share:5.1f} % of the most")
    one, together = figures["store_rows_per_s"], figures["store_rows_per_s_together"]
    print(f"store: {one:,.0f} rows/s one by one, each durable, {together:,.0f} in one transaction")
    print(f"       100,000 rows load in {figures['load_100k_rows_s']:.2f} s")
    print("naive dollars over ours, from the ledger (from the table's reach and costs):")
    for size in SIZES:
        a, b = figures["cost_ratio_checkpoint"][size], figures["cost_ratio_checkpoint_table"][size]
        c = figures["cost_ratio_sparse"][size]
        print(f"  {size}  checkpoints {a:6.2f} ({b:6.2f}; paper {PAPER[size]:5.2f})  {SPARSE_COVERAGE:.0%} coverage {c:7.1f}")


def main() -> int:
    sys.modules["bench_profiler"] = sys.modules[__name__]  # the name that children import this file by
    options = {"--only-sdk": (False, "only through the openai backend"), "--scale": (1.0, "fewer or more units")}

    def measured(given: Options) -> dict[str, Any]:
        if given.only_sdk:
            return sdk_figures(given.scale)
        return measure(given.scale, lambda what: print(f"... {what}", file=sys.stderr, flush=True))

    return study(
        __doc__, options, measured, lambda found: show(found) if "units_per_s" in found else json.dumps(found, indent=1)
    )


if __name__ == "__main__":
    sys.exit(main())
