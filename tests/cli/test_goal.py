"""`vinelm profile --sampler neyman`: the estimator's allocator behind the real runner."""

import json

import pytest

from vinelm.cli.main import main
from vinelm.traces.store import ObservationStore

PROFILE = ["profile", "nl2sql", "--dataset", "data", "--preset", "paper-2", "--isolation", "inline", "--quiet", "--json"]


def profiled(capsys, store: str, *args: str) -> dict:
    assert main([*PROFILE, "--store", store, *args]) == 0
    return json.loads(capsys.readouterr().out)


def rows(store: str) -> list:
    with ObservationStore.open(store) as opened:
        return opened.observations()


def test_neyman_goes_on_in_rounds_until_the_coverage(shop, capsys):
    found = profiled(capsys, "n.db", "--sampler", "neyman", "--coverage", "0.5")
    assert found["stopped_by"] == "coverage"
    assert found["coverage"] >= 0.5
    profiled(capsys, "c.db", "--coverage", "0.5")
    cells = [{(row.request_id, row.prefix) for row in rows(store)} for store in ("n.db", "c.db")]
    assert cells[0] != cells[1]


def test_an_interrupted_profile_is_resumed_alike(shop, capsys):
    for coverage in ("0.2", "0.6"):
        profiled(capsys, "steps.db", "--sampler", "neyman", "--goal", "frontier", "--coverage", coverage)
    profiled(capsys, "once.db", "--sampler", "neyman", "--goal", "frontier", "--coverage", "0.6")
    steps, once = ({(row.request_id, row.prefix) for row in rows(store)} for store in ("steps.db", "once.db"))
    assert steps == once


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--goal", "frontier"], "--goal has no effect with --sampler cascade"),
        (["--sampler", "neyman", "--goal", "best"], "--goal is 'best': use frontier, floor:0.9"),
        (["--sampler", "magic"], "unknown sampler 'magic': use cascade, exhaustive or neyman"),
    ],
)
def test_a_goal_or_sampler_that_makes_no_sense_is_refused(shop, capsys, args, words):
    assert main([*PROFILE, "--store", "s.db", *args]) == 2
    assert words in capsys.readouterr().err
    assert not (shop / "s.db").exists()
