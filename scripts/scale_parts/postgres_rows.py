"""Rows a second that runs write into one store: in PostgreSQL and in a file beside it.

    python scripts/scale_parts/postgres_rows.py [--postgres postgresql://user@host/database] [--json]

Each row goes the way of a profile: its dollars are reserved under a cap in one transaction; then the
row, its checkpoint and its price are written in a second one. The models are left out, so that the store alone is measured. The
same is done on a store that holds 10,000 rows, and on one that holds 200,000: a row must not take longer there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import psycopg
from postgres_for_bench import empty_schema, postgres_at

from vinelm.profiler import ProfileLimits
from vinelm.profiler.execution.ledger import Ledger
from vinelm.traces import ObservationStore
from vinelm.traces.testing import a_row, an_identity

CAP_USD = 1e6
"""Never reached: what is measured is that it is looked at."""
STATE_BYTES = 2000
BATCH = 25
"""Units between two looks at the clock where stores are compared in turn."""
_FILLED = 50_000  # rows in memory at a time while a store is filled


def postgres_rows_per_s(
    postgres: str | None = None,
    *,
    units: int = 200,
    rounds: int = 5,
    sizes: Sequence[int] = (10_000, 200_000),
) -> dict[str, Any]:
    """Measure how many rows a second go into a store: the median of several rounds, in which all cases take turns.

    Args:
        postgres: address of a server; None starts one of the installed programs on loopback.
        units: rows of a round, into each of the stores.
        rounds: how often each case has its turn.
        sizes: rows that a store holds before.

    Returns:
        ``by_size`` and ``sqlite_by_size``: rows that the
        store held before (0: a new one) to rows a second of one process. ``growth`` and ``sqlite_growth``: seconds a row in the
        largest store over those in the smallest one of ``sizes``; 1 is flat. ``seconds_per_transaction``: of the server's disk,
        for a transaction of one row.
    """
    with postgres_at(postgres) as server:
        disk_s = _transaction_s(server)
        by_size, sqlite_by_size = _by_size(server, (0, *sorted(sizes)), units, rounds)
    return {
        "by_size": by_size,
        "growth": by_size[min(sizes)] / by_size[max(sizes)],
        "sqlite_by_size": sqlite_by_size,
        "sqlite_growth": sqlite_by_size[min(sizes)] / sqlite_by_size[max(sizes)],
        "seconds_per_transaction": disk_s,
    }


def _transaction_s(server: str) -> float:
    """Median seconds of a transaction that writes one row of one number."""
    with empty_schema(server) as address, psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE TABLE numbers (number integer)")
        seconds = []
        for number in range(50):
            started = time.perf_counter()
            connection.execute("INSERT INTO numbers VALUES (%s)", (number,))
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _by_size(server: str, sizes: Sequence[int], units: int, rounds: int) -> tuple[dict[int, float], dict[int, float]]:
    """Rows a second of one process by the rows that its store held before: in PostgreSQL, and in a file."""
    rates: tuple[dict[int, list[float]], ...] = ({size: [] for size in sizes}, {size: [] for size in sizes})
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vinelm-bench-"))
        ledgers = []
        for size in sizes:
            for kind, address in enumerate((stack.enter_context(empty_schema(server)), f"{folder}/{size}.db")):
                _fill(address, size)
                ledgers.append((rates[kind][size], stack.enter_context(_run(address))))
        for turn in range(rounds * units // BATCH):
            for some, ledger in ledgers:
                started = time.perf_counter()
                _write(ledger, f"new{turn}", BATCH)
                some.append(BATCH / (time.perf_counter() - started))
    in_postgres, in_files = ({size: statistics.median(some) for size, some in kind.items()} for kind in rates)
    return in_postgres, in_files


def _fill(address: str, rows: int) -> None:
    with ObservationStore.create(address, an_identity()) as store:
        for first in range(0, rows, _FILLED):
            store.add_many(a_row(f"old{number}", cost_usd=0.01) for number in range(first, min(first + _FILLED, rows)))


@contextmanager
def _run(address: str) -> Iterator[Ledger]:
    """The store's side of a run with a cap in dollars."""
    with ObservationStore.open(address) as store, store.exclusive():
        yield Ledger(store, ProfileLimits(budget_usd=CAP_USD))


def _write(ledger: Ledger, name: str, units: int) -> None:
    """Reserve and settle unit after unit."""
    for number in range(units):
        request = f"{name}-{number}"
        entry = ledger.reserve(request, ("small",), 0.05)
        ledger.settle(entry, a_row(request, cost_usd=0.01), request.encode().ljust(STATE_BYTES, b"."))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--postgres", metavar="URL", help="address of a server; by default an own one is started")
    parser.add_argument("--units", type=int, default=200, help="rows of a round (default: 200)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the median counts (default: 5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    figures = postgres_rows_per_s(arguments.postgres, units=arguments.units, rounds=arguments.rounds)
    if arguments.json:
        print(json.dumps({"postgres_rows_per_s": figures}))
        return
    print(f"a transaction of one row: {1000 * figures['seconds_per_transaction']:.1f} ms")
    for size, rate in figures["by_size"].items():
        beside = figures["sqlite_by_size"][size]
        print(f"1 process, {size:,} rows before: PostgreSQL {rate:,.0f}, a file {beside:,.0f} rows/s")
    print(f"growth of the seconds a row: PostgreSQL {figures['growth']:.2f}, a file {figures['sqlite_growth']:.2f}")


if __name__ == "__main__":
    main()
