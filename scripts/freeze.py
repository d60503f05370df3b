"""A record of plans, tries, rows and verdicts, for refactorings to compare with.

`--check` compares with the record in tests/house/frozen and prints the first differences: which trie, which question, what was
said and what is said now. What was refused when the record was made and is answered now is listed apart, and is no difference.
`--write` makes the record anew; `--only plans` or a name as in the output takes a part of it. A change that means to change
plans writes the record in a commit of its own and says why.

Plans: 200 random tries of each kind (scripts/freeze_parts/tries.py), seven questions about each through
``Planner(trie).plan(...)``, equal to 1e-9. Stores: small profiles and random walks through ``vinelm.profile``, ``estimate``,
``plan`` and ``evaluate``, equal to 1e-6 (their errors and intervals to 1e-3, gains by luck to 5 %). Both take about two
minutes, the plans alone half of one. ``--only reproduce-quick`` and ``--only recorded-spider`` (with VINELM_DATA) compare what
these scripts print, which takes three minutes each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported: sums are added in one order

from freeze_parts import plans, record, stores, tries

SHOWN = 12
REPRODUCED = ("table1", "table2", "figure7", "figure8", "figure10")
"""What `scripts/reproduce.py --quick` finds that is no time of this machine, and no cloud of single points."""


def parts() -> dict[str, Callable[[], Iterator[tuple[str, Any]]]]:
    """By name: what finds the items of a part of the record now."""
    found: dict[str, Callable[[], Iterator[tuple[str, Any]]]] = {}
    for kind in tries.KINDS:
        found[f"plans-{kind}"] = lambda kind=kind: iter(plans.answers(kind).items())
    for store in stores.STORES:
        found[f"store-{store.replace(' ', '-')}"] = lambda store=store: store_items(store)
    return found


def slow_parts() -> dict[str, Callable[[], Iterator[tuple[str, Any]]]]:
    """The same for what takes minutes: only where it is named."""
    return {"reproduce-quick": reproduced, "recorded-spider": recorded_spider}


def reproduced() -> Iterator[tuple[str, Any]]:
    """The quick tables of the reproduction, simulated workloads only."""
    with tempfile.TemporaryDirectory() as folder:
        found = said_by("reproduce.py", "--quick", "-o", folder, VINELM_DATA=None)
    for name in REPRODUCED:
        yield name, {part: value for part, value in found[name].items() if part not in ("paper", "line")}


def recorded_spider() -> Iterator[tuple[str, Any]]:
    """What the recorded text-to-SQL systems give, from the data of VINELM_DATA."""
    yield from said_by("recorded_spider.py").items()


def said_by(script: str, *arguments: str, **environment: str | None) -> dict[str, Any]:
    """The JSON that a script prints; a variable of the environment that is None is unset."""
    command = [sys.executable, str(Path(__file__).with_name(script)), "--json", *arguments]
    given = {name: value for name, value in (os.environ | environment).items() if value is not None}
    return dict(json.loads(subprocess.run(command, stdout=subprocess.PIPE, env=given, check=True).stdout))


def store_items(store: str) -> Iterator[tuple[str, Any]]:
    """What is found in a store, item by item."""
    with tempfile.TemporaryDirectory() as folder:
        yield from stores.found_in(store, Path(folder) / "store").items()


def compared(name: str, items: Iterator[tuple[str, Any]], *, whole: bool = True) -> record.Comparison:
    """Compare a part with its record; ``whole``: every item of the record is expected."""
    old, found = record.read(name), record.Comparison()
    if name.startswith("plans-"):
        for number, rows in items:
            _compare_trie(found, name.removeprefix("plans-"), number, old.pop(number), rows)
    else:
        for item, value in items:
            found.compare(f"{name} / {item}", old.pop(item, [record.REFUSED, ""]), value, record.FITTED)
    if whole:
        found.differences += [(f"{name} / {item}", value, record.ABSENT) for item, value in old.items()]
    return found


def _compare_trie(found: record.Comparison, kind: str, number: str, old: list[Any], new: list[Any]) -> None:
    if old[0] != new[0]:
        found.differences.append((f"{kind} {number}: the trie itself", old[0], new[0]))
        return
    for place, (was, now) in enumerate(zip(old[1:], new[1:], strict=True)):
        found.compare(f"{kind} {number} / {place}", was, now, record.TOLERANCE)


def explained(place: str) -> str:
    """The place of a difference, with the question where it is a plan."""
    kind, _, rest = place.partition(" ")
    if kind not in tries.KINDS or " / " not in rest:
        return place
    number, _, question = rest.partition(" / ")
    return f"{place}: {plans.question_of(kind, int(number), int(question))}"


def report(found: record.Comparison) -> Iterator[str]:
    """Lines that say what differs."""
    for place, old, new in found.differences[:SHOWN]:
        tie = " (of equal worth)" if plans.is_tie(old, new) else ""
        yield f"{explained(place)}\n    was {json.dumps(old, default=repr)}\n    now {json.dumps(new, default=repr)}{tie}"
    if len(found.differences) > SHOWN:
        yield f"... and {len(found.differences) - SHOWN} more"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="compare with the record; exit code 1 if something differs")
    action.add_argument("--write", action="store_true", help="make the record anew")
    parser.add_argument("--only", action="append", default=[], help="parts whose name begins so, such as plans or store-demo")
    options = parser.parse_args()
    wrong = 0
    chosen = {name: items for name, items in (parts() | slow_parts()).items() if name.startswith(tuple(options.only))}
    for name, items in (chosen if options.only else parts()).items():
        if options.write:
            record.write(name, dict(items()))
            print(f"{name}: written")
            continue
        found = compared(name, items())
        wrong += len(found.differences)
        newly = f", {len(found.answered)} newly answered" if found.answered else ""
        print(f"{name}: {len(found.differences)} differences{newly}", flush=True)
        print("".join(f"  {line}\n" for line in report(found)), end="")
        print("".join(f"  newly answered: {explained(place)}\n" for place, _ in found.answered[:SHOWN]), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
