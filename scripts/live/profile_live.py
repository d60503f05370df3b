"""Profile NL2SQL on a real engine, kill everything half-way with ``kill -9``, start it again, resume; print what was shown.

    python scripts/live/profile_live.py [--folder build/live] [--engine-python PYTHON] [--requests 3] [--json]

The engine is ``transformers serve`` with a tiny random model (``tiny_model.py``): free, and its SQL is noise. Prices are made
up so that there is a budget to keep. The first run installs about 1 GB into ``FOLDER/venv``.
"""

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from engine import Engine, prepare

WORKERS = 4
BUDGET_USD = 1.0
CATALOG = """\
[backend.openai]
limits = {{ tiny = {{ concurrency = 2, requests_per_min = 600 }} }}

[[model]]
name = "tiny-sampled"
provider = "openai"
model = "{model}"
engine = "tiny"
api_base = "{url}"
max_tokens = 256
timeout_s = 60
price = {{ input = 1.0, output = 4.0, source = "made up for a test", as_of = 2026-01-01 }}
options = {{ temperature = 1.0 }}

[[model]]
name = "tiny-hot"
provider = "openai"
model = "{model}"
engine = "tiny"
api_base = "{url}"
max_tokens = 256
timeout_s = 60
price = {{ input = 0.5, output = 2.0, source = "made up for a test", as_of = 2026-01-01 }}
options = {{ temperature = 1.5, seed = 7 }}
"""


def profile(arguments, catalog, store):
    """The command line of a user, as a child of its own."""
    line = [sys.executable, "-m", "vinelm.cli.main", "profile", "nl2sql", "--models", catalog, "--store", store]
    line += [
        "--limit",
        arguments.requests,
        "--budget-usd",
        BUDGET_USD,
        "--coverage",
        1,
        "--sampler",
        "exhaustive",
        "--workers",
        WORKERS,
    ]
    return subprocess.Popen([*map(str, line), "--json", "--quiet"], stdout=subprocess.PIPE, text=True, start_new_session=True)


def query(store, sql):
    if not store.exists():
        return []
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        try:
            return db.execute(sql).fetchall()
        except sqlite3.OperationalError:  # not made yet
            return []


def wait_for_rows(child, store, wanted):
    """Until the store has that many rows; a line if the run ends before."""
    while child.poll() is None:
        if query(store, "SELECT count(*) FROM observations") >= [(wanted,)]:
            return
        time.sleep(0.05)
    raise SystemExit(f"the profile ended by itself (exit {child.returncode}) before it had {wanted} rows")


def summary(store):
    """What the store says."""
    rows = query(
        store, "SELECT count(*), sum(calls), sum(cost_usd), sum(tokens_in), sum(tokens_out), sum(retries) FROM observations"
    )
    failures = query(store, "SELECT failure, count(*) FROM observations WHERE failure IS NOT NULL GROUP BY failure")
    times = query(store, "SELECT ttft_s, latency_s FROM observations WHERE ttft_s IS NOT NULL ORDER BY ttft_s")
    open_, lost = query(store, "SELECT sum(settled_usd IS NULL AND NOT is_abandoned), sum(is_abandoned) FROM ledger")[0]
    keys = ("rows", "calls", "cost_usd", "tokens_in", "tokens_out", "retries")
    middle = times[len(times) // 2] if times else (None, None)
    return {
        **dict(zip(keys, rows[0], strict=True)),
        "failures": dict(failures),
        "median_ttft_s": middle[0],
        "reservations_open": open_,
        "reservations_abandoned": lost,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/live"))
    parser.add_argument("--engine-python", type=Path, help="a Python that has torch and transformers[serving] already")
    parser.add_argument("--requests", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    python, model = prepare(arguments.folder, arguments.engine_python)
    store, catalog = arguments.folder / "nl2sql.db", arguments.folder / "models.toml"
    for leftover in arguments.folder.glob("nl2sql.db*"):
        leftover.unlink()
    engine = Engine(python, arguments.folder / "engine.log")
    catalog.write_text(CATALOG.format(model=model, url=engine.url), encoding="utf-8")
    try:
        shown = crash_and_resume(arguments, engine, model, (catalog, store))
    finally:
        engine.kill()
    print(json.dumps(shown, indent=None if arguments.json else 2))
    return 0 if shown["ok"] else 1


def crash_and_resume(arguments, engine, model, files):
    catalog, store = files
    engine.start().warm_up(model)
    cells = arguments.requests * (2 + 4 + 8)  # two models, three invocations: no random answer is ever accepted
    child = profile(arguments, catalog, store)
    wait_for_rows(child, store, cells // 2)
    os.killpg(child.pid, signal.SIGKILL)
    engine.kill()
    child.communicate()
    killed = summary(store)
    before = query(store, "SELECT row_id, request_id, prefix, cost_usd FROM observations ORDER BY row_id")
    engine.start().warm_up(model)
    child = profile(arguments, catalog, store)
    output, _ = child.communicate()
    after = query(store, "SELECT row_id, request_id, prefix, cost_usd FROM observations ORDER BY row_id")
    resumed = summary(store)
    checks = {
        "exit code 0": child.returncode == 0,
        "no row lost or changed": after[: len(before)] == before,
        "no cell bought twice": len({row[1:3] for row in after}) == len(after),
        "went on": len(after) > len(before) > 0,
        "no reservation left open": resumed["reservations_open"] == 0,
        "only units in flight abandoned": resumed["reservations_abandoned"] <= WORKERS,
        "within the budget": resumed["cost_usd"] <= BUDGET_USD,
    }
    return {
        "ok": all(checks.values()),
        "checks": checks,
        "when killed": killed,
        "after resuming": resumed,
        "profile": json.loads(output) if output.strip().startswith("{") else output,
    }


if __name__ == "__main__":
    raise SystemExit(main())
