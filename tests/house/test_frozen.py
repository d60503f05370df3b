"""Plans, tries, rows and verdicts are those of the record in `frozen/` (scripts/freeze.py)."""

import copy

import freeze
import pytest

FEW = range(0, 200, 8)
HOW = "\nIf plans are meant to change: python scripts/freeze.py --write, in a commit of its own that says why."


def require_same(name, items, *, whole):
    found = freeze.compared(name, items, whole=whole)
    assert not found.differences, "\n".join([f"{name} differs from the record:", *freeze.report(found)]) + HOW


@pytest.mark.parametrize("kind", ["linear", "branching", "merged", "signals"])
def test_some_plans_are_those_of_the_record(kind):
    require_same(f"plans-{kind}", iter(freeze.plans.answers(kind, FEW).items()), whole=False)


def test_a_stores_tries_plans_and_verdict_are_those_of_the_record():
    require_same("store-branching-walks", freeze.parts()["store-branching-walks"](), whole=True)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        *(f"plans-{kind}" for kind in ("linear", "branching", "merged", "signals")),
        *(f"store-{store}" for store in ("application", "merged-application", "support", "walks", "merged-walks", "demo")),
    ],
)
def test_everything_is_as_in_the_record(name):
    require_same(name, freeze.parts()[name](), whole=True)


def test_the_record_is_complete_and_small():
    names = {f"{name}.json" for name in freeze.parts() | freeze.slow_parts()}
    assert {path.name for path in freeze.record.FOLDER.iterdir()} == names
    assert sum(path.stat().st_size for path in freeze.record.FOLDER.iterdir()) <= 1_000_000
    for kind in freeze.tries.KINDS:
        assert len(freeze.record.read(f"plans-{kind}")) >= 200


def test_every_difference_is_found_and_answers_to_refused_questions_are_none(monkeypatch):
    given = freeze.record.read("plans-branching")
    items = {number: copy.deepcopy(rows) for number, rows in list(given.items())[:40]}
    planned = [
        (n, at) for n, rows in items.items() for at, row in enumerate(rows[1:], 1) if row[0] not in ("refused", "no plan")
    ]
    number, at = planned[-1]
    record = {number: copy.deepcopy(rows) for number, rows in given.items()}
    record[number][at] = ["refused", "once"]
    with monkeypatch.context() as patched:
        patched.setattr(freeze.record, "read", lambda name: record)
        found = freeze.compared("plans-branching", iter(items.items()), whole=False)
    assert not found.differences
    assert len(found.answered) == 1
    for place, value in ((0, "run nothing"), (2, 1.0 + 1e-6), (1, "max_cost_usd max_latency_s")):
        changed = copy.deepcopy(items)
        number, at = planned[place]
        changed[number][at][place] = value if isinstance(value, str) else changed[number][at][place] * value
        found = freeze.compared("plans-branching", iter(changed.items()), whole=False)
        assert len(found.differences) == 1
        assert f"branching {number} / {at - 1}" in next(freeze.report(found))
    number, at = planned[0]
    items[number][at] = ["refused", "not any more"]
    assert len(freeze.compared("plans-branching", iter(items.items()), whole=False).differences) == 1
