"""`vinelm profile --sampler`: rounds, resumption, and what is refused before a store is made."""

import json

import pytest

from vinelm.cli.main import main
from vinelm.traces import ObservationStore

PROFILE = ["profile", "nl2sql", "--dataset", "data", "--preset", "paper-2", "--isolation", "inline", "--quiet", "--json"]


def profiled(capsys, store: str, *args: str) -> dict:
    assert main([*PROFILE, "--store", store, *args]) == 0
    return json.loads(capsys.readouterr().out)


def rows(store: str) -> list:
    with ObservationStore.open(store) as opened:
        return opened.observations()


def test_priced_goes_on_in_rounds_until_the_coverage(shop, capsys):
    found = profiled(capsys, "n.db", "--sampler", "priced", "--coverage", "0.5")
    assert found["stopped_by"] == "coverage"
    assert found["coverage"] >= 0.5
    profiled(capsys, "c.db", "--sampler", "cascade", "--coverage", "0.5")
    cells = [{(row.request_id, row.prefix) for row in rows(store)} for store in ("n.db", "c.db")]
    assert cells[0] != cells[1]
    bought = rows("n.db")
    assert {row.sampler for row in bought} == {"priced"}
    assert len({row.round for row in bought}) > 1
    assert all(0.0 < row.probability <= 1.0 for row in bought)


def test_an_interrupted_profile_is_resumed_alike(shop, capsys):
    for coverage in ("0.2", "0.6"):
        profiled(capsys, "steps.db", "--sampler", "priced", "--coverage", coverage)
    profiled(capsys, "once.db", "--sampler", "priced", "--coverage", "0.6")
    steps, once = (
        {(row.request_id, row.prefix, row.round, row.probability) for row in rows(store)} for store in ("steps.db", "once.db")
    )
    assert steps == once


@pytest.mark.parametrize(
    "args",
    [
        ["--sampler", "neyman"],
        ["--coverage", "1.5"],
        ["--budget-usd", "-1"],
        ["--budget-calls", "-1"],
    ],
    ids=" ".join,
)
def test_what_a_run_would_refuse_is_refused_before_a_store_is_made_or_changed(shop, capsys, args):
    assert main([*PROFILE, "--store", "s.db", *args]) == 2
    assert not (shop / "s.db").exists()
    (shop / "s.db").write_bytes(b"")
    assert main([*PROFILE, "--store", "s.db", *args]) == 2
    assert [path.name for path in shop.glob("s.db*")] == ["s.db"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--sampler", "magic"], "unknown sampler 'magic': use deciding, priced, cascade or exhaustive"),
    ],
)
def test_a_sampler_that_makes_no_sense_is_refused(shop, capsys, args, words):
    assert main([*PROFILE, "--store", "s.db", *args]) == 2
    assert words in capsys.readouterr().err
    assert not (shop / "s.db").exists()
