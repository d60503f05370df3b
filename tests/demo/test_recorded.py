"""The demo on recorded answers: served exactly, judged by plans of the other half, whatever the seed; on one screen."""

import csv
import gzip
import json
import math
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import vinelm
from vinelm.cli.main import main
from vinelm.demo.recorded import against_today, run_recorded
from vinelm.demo.recorded_page import recorded_page, table_rows
from vinelm.demo.recorded_result import DemoPolicy, mean_over_groups
from vinelm.reports import render
from vinelm.traces.served.served_requests import ServedRequest
from vinelm.trie.verdict import LEADS
from vinelm.vinefile import load_trie
from vinelm.workflows.recorded import classeval


def run(name, folder, seed):
    return run_recorded(name, folder, seed=seed, advance=lambda *_: None)


DEMOS = pytest.mark.parametrize("name", ["code", pytest.param("exams", marks=pytest.mark.long)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Returns what a demo has found; each is run once."""
    return cache(lambda name: run(name, tmp_path_factory.mktemp(name), 0))


@pytest.fixture(scope="module")
def found(runs):
    return runs("code")


def test_a_model_alone_is_served_exactly_what_the_table_has(found):
    with gzip.open(classeval.TABLE, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    for one in found.models:
        recorded, per_in, per_out = classeval.PRICES[one.name]
        own = [row for row in rows if row["model"] == recorded]
        usd = [(classeval.PROMPT_TOKENS * per_in + math.ceil(int(row["chars"]) / 4) * per_out) / 1e6 for row in own]
        assert one.accuracy == pytest.approx(np.mean([row["all"] == "1" for row in own]))
        assert one.usd == pytest.approx(np.mean(usd))


def test_every_request_is_judged_once_and_all_policies_by_the_same(found):
    assert {len(one.right) for one in found.policies} == {len(found.groups)} == {376}
    assert len(set(found.groups)) == 96  # classes


def test_the_page_the_trie_and_the_terminal_say_the_same(found):
    page = recorded_page(found)
    assert load_trie(found.trie).verdict.to_dict() == page.card.data == found.found.to_dict()
    rows = {one.name: cells for one, cells in table_rows(found)}
    cost, right, latency = page.card.measures
    assert (cost.before, right.before) == (rows["gpt-4-turbo"][2], rows["gpt-4-turbo"][1])
    assert (cost.after, right.after, cost.change) == (rows["VineLM"][2], rows["VineLM"][1], rows["VineLM"][3])
    assert latency.before == "not measured"
    assert page.headline.startswith(page.card.word)
    assert right.change.removeprefix("+").split(" ")[0] in page.headline
    assert {dot.name for dot in page.card.picture.dots} == {
        "VineLM", "today (gpt-4-turbo)", *(one.name for one in found.models[1:])
    }  # fmt: skip


def test_examples_are_served_requests(found):
    ours, today = ({one.request_id: one for one in policy.served} for policy in (found.vinelm, found.today))
    shown = recorded_page(found).examples.shown
    assert len(shown) == 10
    for one in shown:
        assert one.before.is_right == today[one.request].success
        assert one.after.is_right == ours[one.request].success
        assert one.before.is_right != one.after.is_right
        assert one.after.models == " → ".join(ours[one.request].prefix)


def test_the_page_needs_no_chart_library(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert render(recorded_page(found)).count('<svg class="') == 2


def saves(found):
    plan = found.found.served
    return plan.saved_usd > 0.8 * found.found.cost_usd and plan.gain > 0.0 and found.found.advice in ("switch", "undecided")


def test_it_saves(found):
    assert saves(found)


@pytest.mark.long
def test_the_result_does_not_hang_on_the_seed(tmp_path):
    runs = [run("code", tmp_path / str(seed), seed) for seed in range(10)]
    assert all(map(saves, runs))
    assert all(run("code", tmp_path / "again", 4).found == runs[4].found for _ in range(1))


def policy(right, usd):
    served = (
        ServedRequest(request_id=str(i), success=bool(one), cost_usd=usd, latency_s=0.0, prefix=("p",))
        for i, one in enumerate(right)
    )
    return DemoPolicy(name="p", role="vinelm", served=tuple(served))


@pytest.mark.parametrize(
    ("right", "usd", "word", "share"),
    [
        ([1.0] * 190 + [0.0] * 10, 0.1, "SWITCH", 1.0),  # as often right, a tenth of the dollars
        ([1.0] * 150 + [0.0] * 50, 0.1, "KEEP", 0.0),  # surely less often right
        ([0.0, 1.0] * 8 + [1.0] * 182 + [0.0] * 2, 0.1, "SWITCH", 0.76),  # perhaps a little less often
        ([0.0] * 14 + [1.0] * 185 + [0.0], 0.1, "UNDECIDED", 0.0),
        ([1.0] * 190 + [0.0] * 10, 2.0, "KEEP", 0.0),  # as often right for more
    ],
)
def test_the_word_follows_the_paired_interval(right, usd, word, share):
    today = policy([1.0] * 190 + [0.0] * 10, 1.0)
    found = against_today(policy(right, usd), today, [str(i) for i in range(200)])
    assert (LEADS[found.advice], found.share) == (word, share)


def test_requests_of_one_group_count_as_what_they_are():
    values = np.repeat([1.0, 0.0, 1.0, 0.0, 1.0, 0.0], 10)
    alone = mean_over_groups(values, [str(i) for i in range(60)])
    together = mean_over_groups(values, np.repeat(list("abcdef"), 10).tolist())
    assert alone.value == together.value == 0.5
    assert (together.high - 0.5) / (alone.high - 0.5) == pytest.approx(math.sqrt(6 / 5 * 10 / (60 / 59)))


# -- what the command prints ------------------------------------------------------------------------------------------


@pytest.fixture
def lines(runs, capsys, monkeypatch):
    """Returns what is printed of a demo that finds in no time what it found the first time."""
    monkeypatch.setattr("vinelm.demo.run_recorded", lambda name, folder, **_: replace(runs(name), page=folder / "report.html"))
    monkeypatch.setenv("COLUMNS", "80")

    def printed(*args):
        assert main(["demo", *args, "--no-open", "--quiet"]) == 0
        return capsys.readouterr().out.splitlines()

    return printed


@DEMOS
def test_it_fits_18_lines_of_80_columns(lines, name):
    said = lines(name)
    assert len(said) <= 18
    assert max(map(len, said)) <= 80


def test_the_first_screen_says_what_is_replayed_then_the_figures_then_what_is_real(lines, runs):
    said = "\n".join(lines())
    order = [
        "Replayed: 376 methods of ClassEval", "gpt-4-turbo on every call (today)", "gemini-pro on every call",
        "gpt-3.5-turbo on every call", "deepseek-coder-6.7b on every call", "best fixed plan",
        "VineLM, for a tenth of the dollars",
        "VineLM costs ", "(95 %: ", "Plan: write ", "Real: ", "Computed: dollars", "Chosen because it pays",
        "`vinelm demo exams`", "Report: ",
    ]  # fmt: skip
    places = [said.find(words) for words in order]
    assert -1 not in places
    assert places == sorted(places)
    assert "imulated" not in said
    today = next(line for line in said.splitlines() if "(today)" in line)
    assert f"{100 * runs('code').today.accuracy:.1f} %" in today


@pytest.mark.long
def test_the_second_demo_is_a_no_with_what_is_open_and_real_seconds(lines, runs):
    found = runs("exams")
    said = " ".join(lines("exams"))
    assert found.found.advice == "keep"
    assert found.found.served.best_high < 0.0
    assert "KEEP: VineLM costs" in said
    assert said.index("KEEP: ") < said.index("Open: the cheapest plan that promises gpt-4's accuracy") < said.index("Real: ")
    assert "seconds" in said
    assert found.today.seconds == pytest.approx(11.95, abs=0.01)
    assert found.today.usd == pytest.approx(0.02162, abs=0.00001)
    assert said.index("Where it pays: `vinelm demo`") > 0
    assert len(json.loads("\n".join(lines("exams", "--json")))["policies"]) == 11


def test_its_json_has_every_policy_and_the_verdict(lines, runs):
    found = json.loads("\n".join(lines("--json")))
    assert [one["policy"] for one in found["policies"]] == [
        "gpt-4-turbo", "gemini-pro", "gpt-3.5-turbo", "deepseek-coder-6.7b", "best fixed plan", "VineLM",
    ]  # fmt: skip
    assert found["against_today"]["verdict"] == LEADS[runs("code").found.advice]
    assert (found["is_simulated"], found["requests"], found["open"]) == (False, 376, None)


@DEMOS
def test_it_writes_the_files_of_an_application_and_a_page_without_a_chart_library(runs, name):
    found = runs(name)
    trie = vinelm.load_trie(found.trie)
    assert trie.meta["is_simulated"] is False
    page = found.page.read_text()
    assert "imulated models" not in page
    assert f"<strong>{LEADS[found.found.advice]}</strong>" in page
    assert page.count('<svg class="') == 2
    assert str(found.page.parent) not in page
