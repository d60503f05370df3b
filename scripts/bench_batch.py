"""Batches: the order of requests on an engine model, landing on a budget and a deadline, and what ordering takes.

    python scripts/bench_batch.py --data DIR --only order --results results/batch-order.json
    python scripts/bench_batch.py --data DIR --only landing --results results/batch-landing.json
    python scripts/bench_batch.py --data DIR --only rival --results results/batch-rival.json
    python scripts/bench_batch.py --data DIR --only throughput --results results/batch-throughput.json
    python scripts/bench_batch.py --data DIR --only memory --results results/batch-memory.json
    python scripts/bench_batch.py --data DIR --quick

"order": Debate, MapReduce (the role before the context, and behind it), Reflect and Trading over real contexts with Helium's
own prompts, and the blocks of a chat service, on a simulated engine (`batch_parts/engine.py`) whose constants are derived, not
measured. For each size of the cache and each number of calls in flight: the seconds of our order over those of the best of
{arrival, operator-wise, longest prefix first (the engine is shown 256 calls), depth-first over all calls, a data set sorted by
hand}. In our order eight times as many requests are under way as calls in flight, the rivals have all of them. Answers are
simulated. "replicas": two engines, requests placed by what their first prompts share, against in turn.
"ordering": processor seconds to put calls in order.

"landing": simulated batches over random tries, whose prices and speeds differ from what the trie says by up to 30 %.

"rival": a batch against fixed plans in a loop, on recorded answers (`batch_parts/rival.py`).

"throughput": requests per second, processor time and memory of a batch against a bare loop over `app.batch`, on a local server
(`batch_parts/throughput.py`). "memory": the peak of a large batch; its server answers at once, since only what is kept counts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from batch_parts.landing import landings
from batch_parts.loads import KEY, NAMES, Load, load
from batch_parts.orders import OURS, RIVALS, fitting, placed, ranks, served, served_by_us
from batch_parts.rival import rival
from batch_parts.throughput import REQUESTS, throughput
from studies import Options, each, study, table

from vinelm.batches.order import depth_first
from vinelm.prompts.shape import shape_of

MEMORIES = tuple(2**power for power in range(14, 19))
WINDOWS = (8, 16, 32, 64, 128, 256)
THROUGHPUTS = (2_000, 10_000)
"""Requests of the runs whose throughput is compared."""
NEAR = 1.02
"""Our order is to take at most so many times as long as the best one."""


@cache
def _loaded(name: str, data: Path, contexts: int | None) -> Load:
    return load(name, data, contexts)


@cache
def _ranked(name: str, data: Path, contexts: int | None, memory: int) -> tuple[Load, int, dict[str, list[list[Any]]]]:
    fits, missing = fitting(_loaded(name, data, contexts), memory)
    return fits, missing, {order: ranks(fits, order) for order in RIVALS}


def cell(name: str, data: Path, contexts: int | None, memory: int, window: int) -> dict[str, Any]:
    """Serve one batch in every order; seconds, and the share of prompt tokens that the cache had."""
    fits, missing, ranked = _ranked(name, data, contexts, memory)
    runs = {order: served(fits, ranked[order], memory, window, longest_first=order == "longest prefix") for order in ranked}
    runs[OURS] = served_by_us(fits, memory, window)
    best = min(RIVALS, key=lambda order: runs[order].seconds)
    return {
        "load": name,
        "memory": memory,
        "window": window,
        "requests": len(fits.requests),
        "too_long": missing,
        "best": best,
        "over_best": runs[OURS].seconds / runs[best].seconds,
        "faster_than_arrival": runs["arrival"].seconds / runs[OURS].seconds,
        "seconds": {order: run.seconds for order, run in runs.items()},
        "hits": {order: 1.0 - run.prefilled / run.prompted for order, run in runs.items()},
    }


def replicas(name: str, data: Path, contexts: int | None, memory: int, window: int) -> dict[str, Any]:
    """Serve one batch on two engines, each with such a memory and half of the calls in flight."""
    fits, _, _ = _ranked(name, data, contexts, memory)
    taken = {by: placed(fits, memory, window, by_prefix=by == "prefix") for by in ("prefix", "turns")}
    return {"load": name, "memory": memory, "window": window, "faster_than_turns": taken["turns"] / taken["prefix"]} | taken


def ordering() -> list[dict[str, float]]:
    """Return the best of five processor seconds to order so many calls of 2,000 tokens, six to a document."""
    found = []
    for calls in (1_000, 50_000):
        rng = np.random.default_rng(0)
        documents = [f"document {number} {rng.integers(1 << 60)} " * 200 for number in range(calls // 6)]
        static = "You read reports. " * 100
        shapes = [
            shape_of((static, documents[rng.integers(len(documents))], f"question {number}"), KEY) for number in range(calls)
        ]
        seconds = []
        for _ in range(5 if calls < 10_000 else 1):
            begun = time.process_time()
            depth_first(shapes)
            seconds.append(time.process_time() - begun)
        found.append({"calls": calls, "seconds": min(seconds)})
    return found


def orders(options: argparse.Namespace) -> dict[str, Any]:
    """Measure orders."""
    contexts = 36 if options.quick else options.contexts
    windows, memories = ((8, 64), (2**14, 2**16)) if options.quick else (WINDOWS, MEMORIES)
    asked = [(name, options.data, contexts, *one) for name in NAMES for one in product(memories, windows)]
    on_two = [(name, options.data, contexts, memory, 32) for name in NAMES for memory in memories]
    cells = list(each(_cell, asked, jobs=options.jobs, chunk=len(windows)))
    two = list(each(_replicas, on_two, jobs=options.jobs, chunk=len(memories)))
    missed = [one for one in cells if one["over_best"] > NEAR]
    return {
        "order": {
            "cells": len(cells),
            "within_2_percent": len(cells) - len(missed),
            "worst": max(one["over_best"] for one in cells),
            "missed": [{key: one[key] for key in ("load", "memory", "window", "best", "over_best")} for one in missed],
            "each": cells,
        },
        "replicas": two,
        "ordering": ordering(),
    }


def landed(options: argparse.Namespace) -> dict[str, Any]:
    """Measure how near simulated batches come to what bounds them."""
    with ProcessPoolExecutor(options.jobs) as pool:
        return {"landing": list(pool.map(landings, *zip(*_landings(5 if options.quick else options.runs), strict=True)))}


def throughputs(options: argparse.Namespace) -> dict[str, Any]:
    """Compare the throughput of a batch with that of a bare loop."""
    sizes = (200,) if options.quick else options.requests
    return {"throughput": [throughput(requests, rounds=options.rounds) for requests in sizes]}


def memory(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the memory of a large batch."""
    return {"memory": throughput(1_000 if options.quick else REQUESTS, latency_s=0.0, arms=("batch",))}


def _cell(asked: tuple[Any, ...]) -> dict[str, Any]:
    return cell(*asked)


def _replicas(asked: tuple[Any, ...]) -> dict[str, Any]:
    return replicas(*asked)


def _landings(runs: int) -> Iterator[tuple[str, bool, int, int]]:
    """What is bounded, whether drift moves, simulated runs and requests."""
    for moving in (False, True):
        for bounded in ("dollars", "dollars and seconds"):
            yield bounded, moving, max(runs // 4, 5) if moving else runs, 5000


def lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the figures for people."""
    if "order" in found:
        yield from _order_lines(found)
    if "rival" in found:
        yield from _rival_lines(found["rival"])
    for one in [*found.get("throughput", ()), *([found["memory"]] if "memory" in found else [])]:
        yield ", ".join(f"{key} {value}" for key, value in one.items())
    for one in found.get("landing", ()):
        yield ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in one.items())


ORDER_COLUMNS = {
    "load": "{load}", "memory": "{memory}", "W": "{window}", "over best": "{over_best:.3f}",
    "over arrival": "{faster_than_arrival:.2f}", "best": "{best}",
}  # fmt: skip


def _order_lines(found: dict[str, Any]) -> Iterator[str]:
    order = found["order"]
    yield f"order, simulated engine: within 2 % of the best in {order['within_2_percent']} of {order['cells']} cells, "
    yield f"at worst {order['worst']:.3f} times as long"
    yield from table(order["each"], ORDER_COLUMNS)
    for one in found["replicas"]:
        yield f"two engines, {one['load']}, memory {one['memory']}: {one['faster_than_turns']:.3f} times as fast by prefix"
    for one in found["ordering"]:
        yield f"{one['calls']:,} calls ordered in {one['seconds'] * 1000:.0f} ms"


def _rival_lines(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    for of_table in found:
        yield f"{of_table['table']}, recorded answers, {of_table['splits']} splits: right answers, and points over each rival"
        for one in (*of_table["by_budget"], of_table):
            leads = [
                f"{name} {100 * lead['value']:+.1f} [{100 * lead['low']:+.1f}, {100 * lead['high']:+.1f}]"
                f" (hindsight {100 * one['over_in_hindsight'][name]['value']:+.1f})"
                for name, lead in one["over"].items()
            ]
            usd = f"${one['budget_usd']:.5f}: right {one['success']:.3f}" if "budget_usd" in one else "mean"
            yield f"{usd:>24}  {'  '.join(leads)}"


MEASURES = {"order": orders, "landing": landed, "rival": rival, "throughput": throughputs, "memory": memory}


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = {
        "--recorded": (Path, "with outcomes/; default: the folder of --data", {"metavar": "DIR"}),
        "--contexts": (int, "TAT-QA's contexts; default: all"),
        "--quick": (False, "few contexts, cells and runs"),
        "--runs": (200, "simulated batches whose drift is steady (default 200)"),
        "--requests": (THROUGHPUTS, "of runs whose throughput is compared"),
        "--rounds": (1, "such runs of each arm (default 1)"),
        "--only": (None, "measure one of them", {"choices": MEASURES}),
        "--jobs": (2, "processes"),
    }
    return study(__doc__, options, measured, lines, data="with tatqa.jsonl.gz and the others", words=words)


def measured(options: Options) -> dict[str, Any]:
    options.recorded = options.recorded or options.data.parent
    found = {}
    for name in [options.only] if options.only else MEASURES:
        found |= MEASURES[name](options)
    return found


if __name__ == "__main__":
    sys.exit(main())
