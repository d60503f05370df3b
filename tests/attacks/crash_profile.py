"""Kill a profile with SIGKILL again and again, run it to its end, compare the store with an undisturbed one.

    python tests/attacks/crash_profile.py               # 200 kills
    python tests/attacks/crash_profile.py --kills 20    # a few
    python tests/attacks/crash_profile.py --pauses 20   # SIGSTOP and SIGCONT in place of SIGKILL

Each trial starts the same profile (in processes, threads or inline; a real, small workflow on simulated models) and kills the
run, its children, both, or the process that they are forked from, at a random moment or inside a named one: during a call, a
write, a commit, between a reservation and its unit's start, while the store is being made. Then the same line is
run again, perhaps killed again, and in the end left alone. Other runs are sent SIGTERM or SIGHUP, once or twice, and must end
by themselves.

What must hold after each kill: no more reservations are open than the run had workers, and none of its processes is left. After
each trial: the rows and checkpoints are those of an undisturbed run (a unit whose own child was killed is run again, so that it
leaves no crash); no reservation dangles; what counts on the ledger is within the budget, but for the
calls in flight whose real price exceeded their reservation (here: none).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from attack_paths import SHARED

MOMENTS = ("any", "call", "write", "commit", "start", "creation")
HANGS_S = 300
TARGETS = ("parent", "child", "both", "server", "SIGTERM", "SIGHUP")
MODES = (("process", 3), ("thread", 4), ("inline", 1))
CAPS = ({"coverage": 0.5}, {"sampler": "exhaustive"}, {"coverage": 0.9, "budget_usd": 1.0})
ARGUMENTS = {"models": 3, "depth": 3, "requests": 8}

RUN = """
import json, os, random, signal, sys, time
import bench_profiler
from bench_profiler import *
how = json.loads(sys.argv[1])
arguments = how["arguments"]
loaded = load(**arguments)
def die(*_):
    how["countdown"] -= 1
    if how["countdown"] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
if how["moment"] == "creation":
    from vinelm.traces.databases import database
    real = database.Database.create_tables
    def create_tables(self, *rest):
        real(self, *rest)
        die()
    database.Database.create_tables = create_tables
store = ObservationStore.open_or_create(how["store"], store_identity(loaded.workflow, loaded.catalog, loaded.backends))
if how["moment"] in ("write", "commit"):
    from sqlalchemy import event
    engine = store._database._engine
    if how["moment"] == "write":
        event.listen(engine, "after_cursor_execute", lambda c, u, statement, *_: "INTO observations" in statement and die())
    else:
        event.listen(engine, "commit", die)
if how["moment"] == "call" and how["isolation"] != "process":
    answer = BenchBackend.answer
    def answer_or_die(self, *rest):
        die()
        return answer(self, *rest)
    BenchBackend.answer = answer_or_die
if how["moment"] == "start":
    from vinelm.profiler.scheduling import scheduler
    dispatch = scheduler.Scheduler._dispatch
    def dispatch_or_die(self, jobs, interrupts):
        for job in jobs:
            die()
        return dispatch(self, jobs, interrupts)
    scheduler.Scheduler._dispatch = dispatch_or_die
print("ready", flush=True)
profile(loaded.workflow, loaded.catalog, loaded.backends, store,
        ProfileSettings(execution=execution_of(how["isolation"], how["workers"], arguments), **how["caps"]))
"""


@dataclass(frozen=True)
class Trial:
    """One store: how it is run and killed."""

    isolation: str
    workers: int
    caps: dict
    moment: str
    target: str
    seed: int


def start(code: str, *arguments: str) -> subprocess.Popen:
    """A process of its own that runs that code. Its stdout is text."""
    paths = os.pathsep.join([SHARED, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.Popen([sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.PIPE, text=True)


def how(trial: Trial, store: Path, countdown: int, moment: str) -> str:
    """What :data:`RUN` is told."""
    plain = {
        "arguments": ARGUMENTS, "store": str(store), "moment": moment, "countdown": countdown,
        "isolation": trial.isolation, "workers": trial.workers, "caps": trial.caps,
    }  # fmt: skip
    return json.dumps(plain)


def run_and_kill(trial: Trial, store: Path, rng: random.Random) -> bool:
    """Start it, kill it. Whether something was killed before it ended of itself."""
    inside = trial.moment if trial.target == "parent" else "any"
    countdown = rng.randrange(1, 25) if inside in ("call", "write", "commit", "start") else 1
    with start(RUN, how(trial, store, countdown, inside)) as run:
        assert run.stdout is not None
        hit, family = False, []
        if inside == "any":
            run.stdout.readline()
            time.sleep(rng.random() * (1.6 if trial.isolation == "process" else 0.5))
            family = descendants(run.pid)
            hit = strike(run, trial.target, rng)
        try:
            code = run.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            run.kill()
            raise AssertionError(f"the run hangs for {HANGS_S} s") from None
    require_gone(family)
    if trial.target == "server" and hit and code not in (0, 1):
        raise AssertionError(f"exit code {code} after the death of the process that units are forked from")
    if trial.target.startswith("SIG") and hit and code not in (0, -signal.SIGINT, -getattr(signal, trial.target)):
        raise AssertionError(f"exit code {code} after {trial.target}")  # not 0 where it came before the run began
    return code == -signal.SIGKILL or hit


def strike(run: subprocess.Popen, target: str, rng: random.Random) -> bool:
    """Kill what the trial kills; whether there was any."""
    units = kill_children(run) if target in ("child", "both", "server") else 0
    if target in ("parent", "both"):
        run.kill()
    if target == "server":
        for server in children(run.pid):
            with suppress(OSError):
                os.kill(server, signal.SIGKILL)
    if target.startswith("SIG"):
        for _ in range(rng.choice((1, 2))):
            if run.poll() is None:
                run.send_signal(getattr(signal, target))
                units += 1
    return units > 0


def descendants(pid: int) -> list[int]:
    return [one for child in children(pid) for one in (child, *descendants(child))]


def require_gone(family: list[int]) -> None:
    """No process of the run is left, for longer than the kernel takes."""
    deadline = time.monotonic() + 10
    while left := [pid for pid in family if Path(f"/proc/{pid}").exists()]:
        if time.monotonic() > deadline:
            raise AssertionError(f"{len(left)} processes of the run are left")
        time.sleep(0.02)


def kill_children(run: subprocess.Popen) -> int:
    """The units under way, not the process that they are forked from: as soon as there are some. How many there were."""
    while run.poll() is None:
        killed = 0
        for unit in [unit for server in children(run.pid) for unit in children(server)]:
            with suppress(OSError):  # it may have ended meanwhile
                os.kill(unit, signal.SIGKILL)
                killed += 1
        if killed:
            return killed
        time.sleep(0.002)
    return 0


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(found) for task in Path(f"/proc/{pid}/task").iterdir() for found in (task / "children").read_text().split()]
    return []


def finish(trial: Trial, store: Path) -> None:
    with start(RUN, how(trial, store, 0, "none")) as run:
        try:
            code = run.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            run.kill()
            code = None
    if code != 0:
        raise AssertionError(f"the run does not end well: exit code {code}")


def open_entries(store: Path) -> int:
    """Reservations without a price, as the kill left them; 0 if it came before there was a ledger."""
    if not store.exists():
        return 0
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        try:
            return connection.execute("SELECT COUNT(*) FROM ledger WHERE settled_usd IS NULL").fetchone()[0]
        except sqlite3.OperationalError:
            return 0


ROWS = "SELECT * FROM observations ORDER BY request_id, prefix"
STATES = "SELECT request_id, prefix, digest FROM checkpoints ORDER BY request_id, prefix"


def content(store: Path) -> dict:
    """Rows without their number, checkpoints, and how the ledger stands."""
    with sqlite3.connect(store) as connection:
        cursor = connection.execute(ROWS)
        names = [column[0] for column in cursor.description]
        rows = {(row["request_id"], row["prefix"]): row for row in (dict(zip(names, r, strict=True)) for r in cursor)}
        for row in rows.values():
            del row["row_id"]
        (damage,) = connection.execute("PRAGMA integrity_check").fetchone()
        return {
            "rows": rows,
            "states": connection.execute(STATES).fetchall(),
            "dangling": connection.execute("SELECT COUNT(*) FROM ledger WHERE settled_usd IS NULL").fetchone()[0],
            "committed": connection.execute("SELECT TOTAL(settled_usd) FROM ledger").fetchone()[0],
            "over": connection.execute("SELECT TOTAL(MAX(settled_usd - reserved_usd, 0)) FROM ledger").fetchone()[0],
            "damage": damage,
        }


def problems(trial: Trial, found: dict, undisturbed: dict) -> list[str]:
    """What does not hold; empty if all does."""
    wrong = []
    if found["damage"] != "ok":
        wrong.append(f"damaged: {found['damage']}")
    if found["dangling"]:
        wrong.append(f"{found['dangling']} reservations dangle")
    budget = trial.caps.get("budget_usd")
    if budget is not None and found["committed"] > budget + found["over"] + 1e-9:
        wrong.append(f"${found['committed']} are more than the budget")
    crashed = [cell for cell, row in found["rows"].items() if row["failure"] == "crash"]
    if crashed:
        wrong.append(f"{len(crashed)} units count as crashed, and each was killed at most once in its run")
    if (found["rows"], found["states"]) != (undisturbed["rows"], undisturbed["states"]):
        missing, more = undisturbed["rows"].keys() - found["rows"].keys(), found["rows"].keys() - undisturbed["rows"].keys()
        wrong.append(f"{len(missing)} rows are missing, {len(more)} too many, or they or their checkpoints differ")
    return wrong


def trials(seed: int) -> list[Trial]:
    """Endless variety, fixed by the seed."""
    rng = random.Random(seed)
    made = []
    for number in range(10_000):
        isolation, workers = rng.choice(MODES)
        target = rng.choice(TARGETS if isolation == "process" else ("parent", "SIGTERM", "SIGHUP"))
        moment = rng.choice(MOMENTS) if target == "parent" else "any"
        if moment == "call" and isolation == "process":
            moment = "any"  # the call is made in a child
        made.append(Trial(isolation, workers, rng.choice(CAPS), moment, target, number))
    return made


def torture(kills: int, seed: int, folder: Path, tell=lambda text: None, *, only: str | None = None) -> dict:
    """Kill that often. Figures, and the problems found (none, one hopes). ``only``: in this isolation."""
    undisturbed: dict[str, dict] = {}
    figures: dict = {
        "kills": 0,
        "trials": 0,
        "crashed_units": 0,
        "open_after_kills": Counter(),
        "by": Counter(),
        "problems": [],
    }
    for trial in trials(seed):
        if figures["kills"] >= kills:
            break
        if only is not None and trial.isolation != only:
            continue
        key = json.dumps(trial.caps)
        if key not in undisturbed:
            calm = folder / f"calm-{len(undisturbed)}.db"
            finish(Trial("inline", 1, trial.caps, "none", "parent", 0), calm)
            undisturbed[key] = content(calm)
        rng = random.Random(f"{seed}:{trial.seed}")
        place = folder / f"trial-{trial.seed}"
        place.mkdir()
        store = place / "s.db"
        wrong = []
        try:
            for _ in range(rng.randrange(1, 4)):
                if run_and_kill(trial, store, rng):
                    figures["kills"] += 1
                    figures["by"][f"{trial.isolation}, {trial.target}, {trial.moment}"] += 1
                    left = open_entries(store)
                    figures["open_after_kills"][left] += 1
                    if left > trial.workers:
                        wrong.append(f"{left} reservations are open after a kill of {trial.workers} workers")
            finish(trial, store)
            found = content(store)
            figures["crashed_units"] += sum(row["failure"] == "crash" for row in found["rows"].values())
            wrong += problems(trial, found, undisturbed[key])
        except AssertionError as error:
            wrong.append(str(error))
        figures["trials"] += 1
        figures["problems"] += [f"{trial}: {text}" for text in wrong]
        tell(f"{figures['kills']}/{kills} kills, {len(figures['problems'])} problems")
        shutil.rmtree(place)
    return figures


def pause(run: subprocess.Popen, trial: Trial, rng: random.Random) -> int:
    """Stop the run, its children, or both, at random moments for up to half a second each. How often."""
    assert run.stdout is not None
    run.stdout.readline()
    stops = 0
    while run.poll() is None:
        time.sleep(rng.random() * 0.15)
        servers = children(run.pid)
        units = [unit for server in servers for unit in children(server)]
        chosen = {"parent": [run.pid], "child": units or servers, "both": [run.pid, *servers, *units]}[trial.target]
        for signal_, wait_s in ((signal.SIGSTOP, rng.random() * 0.5), (signal.SIGCONT, 0.0)):
            for pid in chosen:
                with suppress(OSError):  # it may have ended meanwhile
                    os.kill(pid, signal_)
            time.sleep(wait_s)
        stops += 1
    return stops


def pauses(count: int, seed: int, folder: Path, tell=lambda text: None, *, only: str | None = None) -> dict:
    """Stop and continue that often. Nothing is killed, so every store must be that of an undisturbed run."""
    undisturbed: dict[str, dict] = {}
    figures: dict = {"pauses": 0, "trials": 0, "problems": []}
    rng = random.Random(seed)
    while figures["pauses"] < count:
        isolation, workers = rng.choice([mode for mode in MODES if only in (None, mode[0])])
        target = rng.choice(TARGETS) if isolation == "process" else "parent"
        trial = Trial(isolation, workers, rng.choice(CAPS), "pause", target, figures["trials"])
        key = json.dumps(trial.caps)
        if key not in undisturbed:
            calm = folder / f"calm-{len(undisturbed)}.db"
            finish(Trial("inline", 1, trial.caps, "none", "parent", 0), calm)
            undisturbed[key] = content(calm)
        store = folder / f"paused-{trial.seed}.db"
        with start(RUN, how(trial, store, 0, "none")) as run:
            figures["pauses"] += pause(run, trial, rng)
        wrong = problems(trial, content(store), undisturbed[key])
        wrong += [f"exit code {run.returncode}"] if run.returncode else []
        figures["problems"] += [f"{trial}: {text}" for text in wrong]
        figures["trials"] += 1
        tell(f"{figures['pauses']}/{count} pauses, {len(figures['problems'])} problems")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--pauses", type=int, help="pause with SIGSTOP that often, and kill nothing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=[mode for mode, _ in MODES], help="kill only runs of this isolation")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run, often = (torture, options.kills) if options.pauses is None else (pauses, options.pauses)
        figures = run(
            often,
            options.seed,
            Path(folder),
            lambda text: print(text, file=sys.stderr, end="\r", flush=True),
            only=options.only,
        )
    print(file=sys.stderr)
    if options.json:
        print(json.dumps(figures, indent=1))
    elif options.pauses is not None:
        print(f"{figures['pauses']} pauses in {figures['trials']} runs")
        print("\n".join(figures["problems"]) or "every store is what it must be")
    else:
        print(f"{figures['kills']} kills in {figures['trials']} stores, {figures['crashed_units']} units died with their child")
        for name, n in sorted(figures["by"].items()):
            print(f"  {n:4}  {name}")
        left = ", ".join(f"{n} after {times} kills" for n, times in sorted(figures["open_after_kills"].items()))
        print(f"reservations open: {left}")
        print("\n".join(figures["problems"]) or "every store is what it must be")
    sys.exit(bool(figures["problems"]))


if __name__ == "__main__":
    main()
