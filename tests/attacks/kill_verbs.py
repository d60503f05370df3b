"""Kill each verb that spends money with SIGKILL again and again, run the same line to its end, compare with an undisturbed run.

    python tests/attacks/kill_verbs.py                          # 200 kills of each verb
    python tests/attacks/kill_verbs.py --kills 20 --only batch  # a few, of one verb

Each run is the verb's own command line in a process of its own, on a small application with simulated models. It is killed at a
random moment, or at one of the moments between two events: a reservation is about to be committed or was, a call is about to be
made, or is paid and not settled. Then the same line runs again, is perhaps killed again, and in the end left alone.

What must hold after each kill: no more entries of the ledger are open than requests or units were under way, and what was
really paid is covered by what is settled and reserved. At the end: the rows are those of the undisturbed run; entries that a
kill left open are settled at their bounds, all others cost what they cost in the undisturbed run, and nothing is open.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attack_paths import SHARED

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
WORKERS = 4
APP = '''
"""The application of the documentation; its check asks a tool."""
import my_app
from langchain_core.tools import tool

@tool
def is_number(text: str) -> bool:
    "Whether a text is a number."
    return my_app.is_number(text)

def check(state: my_app.State):
    return {"problem": "" if is_number.invoke({"text": state["answer"]}) else "this is not a whole number"}

my_app.check = check
workflow = my_app.workflow
'''
PROFILED = (
    "profile killed_app:workflow --models models.toml --store p.db --coverage 0.3 --limit 40 --budget-usd 100"
    " --isolation thread"
)
ESTIMATED = "estimate p.db -o t.vine --max-error 1"
HELD_OUT = f"--workflow killed_app:workflow --maximize accuracy --workers {WORKERS} --budget-usd 100 --log k.db"

FORKS = """
import contextlib, importlib, json, os, signal, sys, threading, time
from sqlalchemy import event
from vinelm.cli.main import main
from vinelm.money.spend_guard import SpendGuard
from vinelm.traces.databases.database import Database

def dying(count):
    left, lock = [count], threading.Lock()

    def step(*_):
        with lock:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    authorize, settle, opened = SpendGuard.authorize, SpendGuard._settle, Database.__init__

    def authorized(guard, upper_usd):
        permit = authorize(guard, upper_usd)
        step()  # its bound is durable, and it is not made
        return permit

    def settled(guard, permit, usage):
        if usage is not None:
            with open("paid.txt", "a") as paid:
                paid.write(f"{usage.cost_usd}\\n")
        step()  # it is paid, and nobody knows
        settle(guard, permit, usage)

    def opening(self, *given, **named):
        opened(self, *given, **named)
        event.listen(self._engine, "commit", step)

    SpendGuard.authorize, SpendGuard._settle, Database.__init__ = authorized, settled, opening

for line in sys.stdin:
    folder, words, die, after_s = json.loads(line)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.chdir(folder)
            sys.path.insert(0, folder)
            out = os.open("out.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for descriptor in (1, 2):
                os.dup2(out, descriptor)
            dying(die)
            code = main(words)
            with open("modules.txt", "w") as file:
                file.write(" ".join(sys.modules))
        finally:
            os._exit(code)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if die == 0 and after_s is None and code in (0, 1):  # what it has imported, those that follow need not
        for name in set(open(folder + "/modules.txt").read().split()) - {*sys.modules, "my_app", "killed_app"}:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    print(code, flush=True)
"""


@dataclass(frozen=True)
class Verb:
    """A verb that spends money.

    Attributes:
        line: How it is run; its store is ``k.db``.
        rows: What it keeps: tables of the store, and the columns that differ from run to run.
        under_way: Requests or units at a time.
    """

    line: str
    rows: dict[str, frozenset[str]]
    under_way: int = WORKERS


SERVED = {"served": frozenset({"entry_id"})}
VERBS = {
    "profile": Verb(
        "profile killed_app:workflow --models models.toml --store k.db --sampler exhaustive --limit 12 --budget-usd 100"
        f" --isolation thread --workers {WORKERS}",
        {"observations": frozenset({"row_id"}), "checkpoints": frozenset()},
    ),
    "batch": Verb(
        "batch killed_app:workflow --trie t.vine --maximize accuracy --budget-usd 100 -o k.jsonl --store k.db"
        f" --workers {WORKERS}",
        {"answers": frozenset({"entry_id"})},
    ),
    "verify": Verb(f"verify p.db t.vine --requests 60 {HELD_OUT}", SERVED),
    "evaluate --serve": Verb(f"evaluate p.db t.vine --serve 25 {HELD_OUT}", SERVED),
    "tools record": Verb(
        "tools record killed_app:workflow --models models.toml --store k.db --values --limit 60 --budget-usd 100",
        {  # tools take real seconds
            "served": frozenset({"entry_id", "latency_s"}),
            "tool_calls": frozenset({"call_id", "started_s", "ended_s"}),
        },
        under_way=1,
    ),
}


@dataclass
class Figures:
    """What came of the kills of one verb."""

    kills: int = 0
    stores: int = 0
    open_after_kills: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Runs:
    """Runs command lines in forks of one process, each in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SHARED, os.environ.get("PYTHONPATH", "")])}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([sys.executable, "-c", FORKS], env=environment, **pipes)
        made = folder / "made"
        made.mkdir()
        for name in ("my_app.py", "models.toml", "questions.jsonl"):
            shutil.copy(EXAMPLES / name, made)
        (made / "killed_app.py").write_text(APP, encoding="utf-8")
        for line in (PROFILED, ESTIMATED):
            self.finish(made, line)

    def begin(self, name: str) -> Path:
        """Return a new folder with the application, its profile and its plan."""
        shutil.copytree(self.folder / "made", self.folder / name)
        return self.folder / name

    def run(self, folder: Path, line: str, *, die: int = 0, after_s: float | None = None) -> int:
        """Run a line; returns its exit code, -9 if it was killed: at that many events, or after so many seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(folder), line.split(), die, after_s]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def finish(self, folder: Path, line: str) -> None:
        """Run a line to its end."""
        code = self.run(folder, line)
        if code not in (0, 1):  # 1: a plan's promise was not kept
            raise AssertionError(f"exit code {code}: {(folder / 'out.txt').read_text()}")

    def close(self) -> None:
        """End the process that forks."""
        self._process.communicate()


def content(folder: Path, verb: Verb) -> dict[str, list[tuple[Any, ...]]]:
    """What a verb has kept, in an order that does not depend on threads."""
    found = {}
    with closing(sqlite3.connect(folder / "k.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        for table, own in verb.rows.items():
            cursor = connection.execute(f"SELECT * FROM {table}")
            kept = [place for place, column in enumerate(cursor.description) if column[0] not in own]
            found[table] = sorted((tuple(row[place] for place in kept) for row in cursor), key=repr)
    return found


def ledger(folder: Path) -> dict[int, tuple[float, float | None]]:
    """What is reserved and settled, by entry; empty before there is a ledger."""
    if not (folder / "k.db").exists():
        return {}
    with closing(sqlite3.connect(f"file:{folder / 'k.db'}?mode=ro", uri=True)) as connection:
        try:
            entries = connection.execute("SELECT entry_id, reserved_usd, settled_usd FROM ledger")
            return {entry: (reserved, settled) for entry, reserved, settled in entries}
        except sqlite3.OperationalError:
            return {}


def committed(entries: dict[int, tuple[float, float | None]]) -> float:
    """The dollars that count: settled, or reserved where nothing is settled."""
    return sum(reserved if settled is None else settled for reserved, settled in entries.values())


def paid(folder: Path) -> float:
    """The dollars that all runs have really paid, so far as models have answered."""
    return sum(map(float, (folder / "paid.txt").read_text().split())) if (folder / "paid.txt").exists() else 0.0


def torture(runs: Runs, name: str, kills: int, seed: int = 0, tell: Any = lambda figures: None) -> Figures:
    """Kill a verb that often. The problems found are in the figures: none, one hopes."""
    verb, figures, rng = VERBS[name], Figures(), random.Random(f"{seed}:{name}")
    calm, began_s = runs.begin(f"{name}-calm"), time.monotonic()
    runs.finish(calm, verb.line)
    calm_s, whole, calm_usd = time.monotonic() - began_s, content(calm, verb), committed(ledger(calm))
    assert whole
    assert all(whole.values())
    assert paid(calm) <= calm_usd + 1e-9
    while figures.kills < kills:
        folder = runs.begin(f"{name}-{figures.stores}")
        problems: list[str] = []
        bounds: dict[int, float] = {}
        for _ in range(rng.randrange(1, 4)):
            how: dict[str, Any] = rng.choice(({"die": rng.randrange(1, 150)}, {"after_s": rng.random() * calm_s}))
            if runs.run(folder, verb.line, **how) != -9:
                break  # it has ended before
            entries = ledger(folder)
            left = {entry: reserved for entry, (reserved, settled) in entries.items() if settled is None}
            bounds |= left
            figures.kills += 1
            figures.open_after_kills[len(left)] += 1
            if len(left) > verb.under_way:
                problems.append(f"{len(left)} entries are open after a kill of {verb.under_way} at a time")
            if paid(folder) > committed(entries) + 1e-9:
                problems.append(f"${paid(folder)} were paid, and ${committed(entries)} count")
        try:
            runs.finish(folder, verb.line)
            problems += differences(folder, verb, whole, bounds, calm_usd)
        except AssertionError as error:
            problems.append(str(error))
        figures.stores += 1
        figures.problems += [f"{folder.name}: {problem}" for problem in problems]
        shutil.rmtree(folder)
        tell(figures)
    return figures


def differences(folder: Path, verb: Verb, whole: dict[str, Any], bounds: dict[int, float], calm_usd: float) -> list[str]:
    """What is not as in an undisturbed run that cost ``calm_usd``, but for the entries that kills left open."""
    problems, entries = [], ledger(folder)
    found = content(folder, verb)
    problems += [
        f"{table}: {len(set(rows) - set(found[table]))} rows are missing, {len(set(found[table]) - set(rows))} are others, of"
        f" {len(rows)} and {len(found[table])}"
        for table, rows in whole.items()
        if rows != found[table]
    ]
    dangling = sum(settled is None for _, settled in entries.values())
    if dangling:
        problems.append(f"{dangling} entries are open")
    wrong = [entry for entry, bound in bounds.items() if entries[entry][1] != bound]
    if wrong:
        problems.append(f"{len(wrong)} entries that a kill left open are not settled at their bounds")
    expected = calm_usd + sum(bounds.values())
    if abs(committed(entries) - expected) > 1e-9:
        problems.append(f"${committed(entries)} count in place of ${expected}")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="of each verb")
    parser.add_argument("--only", choices=list(VERBS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder))
        for name in VERBS if options.only is None else [options.only]:
            found = torture(
                runs, name, options.kills, options.seed,
                lambda figures: print(f"{figures.kills} kills", file=sys.stderr, end="\r", flush=True),
            )  # fmt: skip
            left = ", ".join(f"{n} after {times}" for n, times in sorted(found.open_after_kills.items()))
            print(f"{name}: {found.kills} kills in {found.stores} stores; entries open: {left} kills", flush=True)
            problems += found.problems
        runs.close()
    print("\n".join(problems) or "every store is what it must be")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
