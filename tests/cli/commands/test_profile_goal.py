"""`vinelm profile --sampler neyman`: the estimator's allocator behind the real runner."""

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


def test_neyman_goes_on_in_rounds_until_the_coverage(shop, capsys):
    found = profiled(capsys, "n.db", "--sampler", "neyman", "--coverage", "0.5")
    assert found["stopped_by"] == "coverage"
    assert found["coverage"] >= 0.5
    profiled(capsys, "c.db", "--coverage", "0.5")
    cells = [{(row.request_id, row.prefix) for row in rows(store)} for store in ("n.db", "c.db")]
    assert cells[0] != cells[1]
    bought = rows("n.db")
    assert {row.sampler for row in bought} == {"neyman"}
    assert len({row.round for row in bought}) > 1
    assert all(row.probability is not None and 0.0 < row.probability <= 1.0 for row in bought)


def test_an_interrupted_profile_is_resumed_alike(shop, capsys):
    for coverage in ("0.2", "0.6"):
        profiled(capsys, "steps.db", "--sampler", "neyman", "--goal", "frontier", "--coverage", coverage)
    profiled(capsys, "once.db", "--sampler", "neyman", "--goal", "frontier", "--coverage", "0.6")
    steps, once = (
        {(row.request_id, row.prefix, row.round, row.probability) for row in rows(store)} for store in ("steps.db", "once.db")
    )
    assert steps == once


def test_another_goal_is_another_run_and_says_so_in_one_line(shop, capsys):
    line = ["--sampler", "neyman", "--store", "s.db", "--json"]
    loud = [arg for arg in PROFILE if arg != "--quiet"]
    said = []
    for args in (["--goal", "floor:0.9", "--coverage", "0.2"], ["--goal", "floor:0.9", "--coverage", "0.3"],
                 ["--goal", "cap:0.01", "--coverage", "0.4"], ["--seed", "0", "--coverage", "0.5"]):  # fmt: skip
        before = len(rows("s.db")) if (shop / "s.db").exists() else 0
        assert main([*loud, *line, *args]) == 0
        events = [json.loads(text) for text in capsys.readouterr().err.splitlines() if text.startswith("{")]
        said.append([event["text"] for event in events if event["event"] == "note"])
        assert len(rows("s.db")) > before
    end = "rows count and are not paid for again, the sampler starts again"
    assert said[:2] == [[], []]
    assert len(said[2]) == len(said[3]) == 1
    assert said[2][0].startswith("the store's last run had other settings (goal cap:0.01 instead of floor:0.9): its ")
    assert said[2][0].endswith(end)
    assert "goal everything instead of cap:0.01" in said[3][0]


def test_a_dry_run_plays_the_samplers_own_rounds_up_to_the_goal(shop, capsys):
    dry = ["--dry-run", "--coverage", "0.6", "--store", "s.db"]
    adaptive = profiled(capsys, "s.db", "--sampler", "neyman", "--goal", "frontier", *dry)
    uniform = profiled(capsys, "s.db", "--sampler", "cascade", *dry)
    assert adaptive["rounds"] > 1
    assert (uniform["rounds"], uniform["held_back_by"]) == (1, "1 worker")
    assert adaptive["stopped_by"] == "coverage"
    assert adaptive["coverage"]["middle"] >= 0.6
    assert not (shop / "s.db").exists()
    assert main([*(arg for arg in PROFILE if arg != "--json"), "--sampler", "neyman", *dry]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"An adaptive sampler: each of its {adaptive['rounds']} rounds was proposed once" in out
    assert "What limits them: 1 worker" in " ".join(out.split())


def test_a_dry_run_without_checkpoints_prices_every_path(shop, capsys):
    shared = profiled(capsys, "s.db", "--dry-run", "--sampler", "exhaustive", "--coverage", "1")
    naive = profiled(capsys, "s.db", "--dry-run", "--sampler", "exhaustive", "--no-checkpoints")
    assert naive["cost_usd"]["middle"] > 1.3 * shared["cost_usd"]["middle"]


@pytest.mark.parametrize(
    "args",
    [
        ["--no-checkpoints"],
        ["--no-checkpoints", "--sampler", "exhaustive", "--coverage", "0.5"],
        ["--coverage", "1.5"],
        ["--budget-usd", "-1"],
        ["--budget-calls", "-1"],
    ],
    ids=" ".join,
)
def test_what_a_run_would_refuse_is_refused_before_a_store_is_made_or_put_aside(shop, capsys, args):
    assert main([*PROFILE, "--store", "s.db", *args]) == 2
    assert not (shop / "s.db").exists()
    (shop / "s.db").write_bytes(b"")
    assert main([*PROFILE, "--store", "s.db", "--force-rerun", *args]) == 2
    assert [path.name for path in shop.glob("s.db*")] == ["s.db"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--goal", "frontier"], "--goal has no effect with --sampler priced"),
        (["--sampler", "neyman", "--goal", "best"], "goal is 'best': use everything, frontier, floor:0.9"),
        (["--sampler", "magic"], "unknown sampler 'magic': use priced, cascade, exhaustive or neyman"),
    ],
)
def test_a_goal_or_sampler_that_makes_no_sense_is_refused(shop, capsys, args, words):
    assert main([*PROFILE, "--store", "s.db", *args]) == 2
    assert words in capsys.readouterr().err
    assert not (shop / "s.db").exists()
