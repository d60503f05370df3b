"""Kill a replay with SIGKILL again and again, run it to its end, compare its store with an undisturbed one.

    python tests/attacks/crash_replay.py               # 50 kills
    python tests/attacks/crash_replay.py --kills 10

Each run is a process that is forked from this one: a replay of 150 recorded calls with models of its own and a judge. It is
killed at a random one of the moments between a reservation, a call, its settlement and a commit. The same line is run again,
and killed again, until it ends; then the next trial begins with a new store.

What must hold after each kill: what counts on the ledger is within the budget, and is the price of the answers that are there,
and the bound of those calls that were under way. After each trial: the answers are those of an undisturbed run, byte for byte,
and so are the verdicts, the questions and the dollars but for the bounds of the calls that were lost.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import signal
import sqlite3
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import attack_paths  # noqa: F401 - first: where the rest is
from kit.worlds.replays import RuleChat, answered, differs, recorded, truth, wrong
from sqlalchemy import event

from vinelm.catalog import Catalog, Price
from vinelm.errors import StoreError
from vinelm.money.spend_guard import SpendGuard
from vinelm.replay import replay
from vinelm.replay.kept import opened
from vinelm.traces.databases.database import Database

CALLS, WORKERS, BUDGET_USD = 150, 3, 2.0
CALL_USD, BOSS_USD = 0.001, 0.009
"""Of a call of the cheap model, and of the judge: exactly what is reserved for it."""
MOMENTS = 260
"""About as many moments as an undisturbed run has."""


def run(path: Path) -> Any:
    """Replay; questions are not answered, so that it ends with some that wait."""
    nano = lambda number: wrong(number) if differs(number, 0.08, 1) else truth(number)  # noqa: E731
    boss = lambda number: '{"better": "second"}' if number % 2 else "none of these"  # noqa: E731
    rules = {"nano": RuleChat(rule=nano), "boss": RuleChat(rule=boss)}
    prices = {
        name: Price(input=0.0, output=0.0, call=usd, source="a test", as_of=datetime.date.today())
        for name, usd in (("nano", CALL_USD), ("boss", BOSS_USD))
    }
    catalog = Catalog.from_chat_models(rules, prices=prices)
    return replay(recorded(CALLS), path, catalog, budget_usd=BUDGET_USD, workers=WORKERS, max_loss=0.06, judge="boss")


def dying(count: int) -> None:
    """Kill this process at the count-th of its moments."""
    left, lock = [count], threading.Lock()

    def step(*_: Any) -> None:
        with lock:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    authorize, settle, opening = SpendGuard.authorize, SpendGuard._settle, Database.__init__

    def authorized(guard: Any, upper_usd: float) -> Any:
        permit = authorize(guard, upper_usd)
        step()  # its bound is durable, and it is not made
        return permit

    def settled(guard: Any, permit: Any, usage: Any) -> None:
        step()  # it is paid, and nobody knows
        settle(guard, permit, usage)

    def opens(self: Any, *given: Any, **named: Any) -> None:
        opening(self, *given, **named)
        event.listen(self._engine, "commit", step)

    SpendGuard.authorize, SpendGuard._settle, Database.__init__ = authorized, settled, opens  # type: ignore[method-assign]


def forked(path: Path, die: int) -> bool:
    """Run in a process of its own; whether it came to its end."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            dying(die)
            run(path)
            code = 0
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise AssertionError(f"exit code {status} after {die} moments")
    return status == 0


def kept(path: Path) -> tuple[dict[tuple[int, str], tuple[Any, ...]], float, list[tuple[Any, ...]]]:
    """The answers, the dollars that count, and the questions."""
    with opened(path) as store:
        found = {key: (one.answer, one.failure, one.list_usd) for key, one in store.answers.items()}
        asked = [(row["unit_id"], row["model"], row["is_today_left"], row["is_open"]) for row in store.rows.questions()]
        return found, store.store.committed_usd(), asked


def told(found: Any) -> list[Any]:
    """The verdicts, without the seconds of calls."""
    return [step.to_dict() | {"latency_s": None} for step in found.steps]


def open_entries(path: Path) -> int:
    """Entries of the ledger that nobody has settled."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM ledger WHERE settled_usd IS NULL").fetchone()[0])


def trial(folder: Path, rng: random.Random, left: int) -> int:
    """Kill one replay until it ends or so many kills are made; returns how many were."""
    path, kills = folder / "a.db", 0
    while kills < left and not forked(path, rng.randrange(1, MOMENTS)):
        kills += 1
        if not path.exists() or not path.stat().st_size:
            continue
        try:
            answers, usd, _ = kept(path)
        except StoreError as error:  # killed before its tables were there
            if error.code != "other-file":
                raise
            continue
        paid = sum(cost for _, _, cost in answers.values())
        assert usd <= BUDGET_USD
        assert open_entries(path) <= WORKERS
        assert -1e-9 <= usd - paid <= WORKERS * kills * BOSS_USD + 1e-9, (usd - paid, kills)
    return kills


def attack(kills: int, seed: int, folder: Path) -> int:
    """Trials until so many kills are made; each ends as an undisturbed run does."""
    (folder / "whole").mkdir()
    plain = run(folder / "whole" / "a.db")
    assert plain.waiting, "persons are asked something"
    whole, usd, questions = kept(folder / "whole" / "a.db")
    rng, made, number = random.Random(seed), 0, 0
    while made < kills:
        place = folder / str(number)
        place.mkdir()
        made += trial(place, rng, kills - made)
        found = run(place / "a.db")
        answers, paid, asked = kept(place / "a.db")
        assert answers == whole
        assert asked == questions
        assert told(found) == told(plain)
        assert usd - 1e-9 <= paid <= BUDGET_USD
        assert abs(found.spent_usd - paid) < 1e-9, (found.spent_usd, paid)
        number += 1
        print(f"trial {number}: {made} kills, ${paid - usd:.3f} at their bound", flush=True)
    assert answered(place / "a.db")
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = attack(given.kills, given.seed, Path(folder))
    print(f"{made} kills: answers, questions, verdicts and dollars are those of an undisturbed run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
