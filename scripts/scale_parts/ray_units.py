"""Units a second on a Ray cluster of two local nodes, and the rows of a run whose second node is killed half-way.

    python scripts/scale_parts/ray_units.py [--json]

The units go through the openai backend to a server that answers after a fixed time (`local_openai.py`), so that what is
measured is waiting for models, as in a real profile. Needs the extra `ray`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from bench_profiler import load_sdk
from local_openai import local_openai

from vinelm.profiler import ExecutionConfig, ProfileResult, ProfileSettings, Progress, RayCluster, WorkflowSource, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.rows.observation import Observation
from vinelm.traces import ObservationStore

LATENCY_S = 0.5
"""Of a model call."""
STORE_BYTES = 100 * 2**20
TIMES = ("latency_s", "tool_latency_s", "ttft_s", "in_flight")
"""What differs from run to run in a row."""


@contextmanager
def two_nodes() -> Iterator[tuple[Any, Any]]:
    """A cluster of this machine: (the cluster, its second node). Reports nothing to Ray's makers."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    try:
        yield cluster, cluster.add_node(**size)
    finally:
        cluster.shutdown()


def profiled(
    url: str, requests: int, workers: int, address: str | None, on_row: Callable[[Progress], None] | None = None, **limits: Any
) -> tuple[list[Observation], float, ProfileResult, list[str]]:
    """Profile on the cluster at the address, or on this machine: (rows, committed dollars, result, notes)."""
    arguments = {"url": url, "requests": requests}
    loaded, notes = load_sdk(**arguments), list[str]()
    execution = ExecutionConfig(
        isolation="process", workers=workers, source=WorkflowSource(function="bench_profiler:load_sdk", arguments=arguments),
        cluster=None if address is None else RayCluster(address=address),
    )  # fmt: skip
    identity = store_identity(loaded.workflow, loaded.catalog, loaded.backends)
    with tempfile.TemporaryDirectory() as folder, ObservationStore.create(Path(folder) / "bench.db", identity) as store:
        result = profile(
            loaded.workflow, loaded.catalog, loaded.backends, store, ProfileSettings(execution=execution, on_progress=on_row,
            on_note=notes.append, **limits),
        )  # fmt: skip
        rows = store.observations()
        failed = [row.detail for row in rows if row.failure is not None]
        if failed:
            raise SystemExit(f"{len(failed)} units failed: {failed[0]}")
        return rows, store.committed_usd(), result, notes


def units_per_s(url: str, workers: int, units: int, address: str | None) -> float:
    """Units a second, from the end of the first third to the last but one batch: loading and the end are left out."""
    at: list[float] = []
    profiled(url, 4 * units, workers, address, lambda _: at.append(time.perf_counter()), budget_calls=units)
    first, last = len(at) // 3, len(at) - min(workers, len(at) // 4) - 1
    return (last - first) / (at[last] - at[first])


def killed_half_way(url: str, address: str, cluster: Any, node: Any, *, requests: int, workers: int) -> dict[str, Any]:
    """Kill the second node when half of the rows are there; the rows have to be those of an undisturbed run on one machine."""
    whole, usd, _, _ = profiled(url, requests, workers, None, sampler="exhaustive")
    killed_at: list[int] = []

    def on_row(progress: Progress) -> None:
        if progress.executed >= len(whole) // 2 and not killed_at:
            killed_at.append(progress.executed)
            cluster.remove_node(node, allow_graceful=False)

    rows, committed_usd, result, notes = profiled(url, requests, workers, address, on_row, sampler="exhaustive")
    if by_cell(rows) != by_cell(whole):
        raise SystemExit("a node was killed, and the rows differ from those of an undisturbed run")
    return {
        "rows": len(rows), "killed_after_rows": killed_at[0], "rows_equal": True, "stopped_by": result.stopped_by,
        "said": notes, "usd": committed_usd, "usd_undisturbed": usd,
    }  # fmt: skip


def by_cell(rows: Sequence[Observation]) -> dict[Any, Any]:
    """Each row by its cell, without times."""
    return {
        (row.request_id, row.prefix): {name: getattr(row, name) for name in row.__slots__ if name not in TIMES} for row in rows
    }


def ray_units_per_s(*, workers: Sequence[int] = (1, 2, 4), units: int = 30, requests: int = 4) -> dict[str, Any]:
    """Measure on two nodes of this machine.

    Args:
        workers: numbers of units at a time.
        units: rows for each worker of a run.
        requests: of the run whose second node is killed.

    Returns:
        ``by_workers`` (workers to units a second), ``most_possible`` (workers over the latency), ``local_by_workers``: the same
        on this machine without Ray; ``latency_s``; ``killed``: see :func:`killed_half_way`.

    Raises:
        SystemExit: a unit failed, or the rows of the killed run differ.
    """
    sys.path.insert(0, str(Path(__file__).parents[1]))  # where hosts find what they load
    with local_openai(LATENCY_S) as url, two_nodes() as (cluster, second):
        address = cluster.address
        local = {number: units_per_s(url, number, units * number, None) for number in workers}
        on_ray = {number: units_per_s(url, number, units * number, address) for number in workers}
        killed = killed_half_way(url, address, cluster, second, requests=requests, workers=max(workers))
    most = {number: number / LATENCY_S for number in workers}
    return {"latency_s": LATENCY_S, "by_workers": on_ray, "local_by_workers": local, "most_possible": most, "killed": killed}


def show(figures: dict[str, Any]) -> None:
    """Print the figures for people."""
    for number, rate in figures["by_workers"].items():
        local, most = figures["local_by_workers"][number], figures["most_possible"][number]
        print(f"{number} at a time: {rate:.2f} units/s on two Ray nodes, {local:.2f} without Ray, {most:g} possible")
    killed = figures["killed"]
    print(
        f"a node killed after {killed['killed_after_rows']} of {killed['rows']} rows: the rows are those of an undisturbed run"
    )
    print(f"  ${killed['usd']:.6f} on the ledger instead of ${killed['usd_undisturbed']:.6f}; {'; '.join(killed['said'])}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--units", type=int, default=30, help="rows for each worker of a run (default: 30)")
    arguments = parser.parse_args()
    figures = ray_units_per_s(units=arguments.units)
    print(json.dumps({"ray_units_per_s": figures}, indent=1)) if arguments.json else show(figures)


if __name__ == "__main__":
    main()
