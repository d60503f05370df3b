"""A profile with recorded calls: equal ones are not paid again, count at what they cost, and are today's answers."""

import json
from dataclasses import replace

import pytest
from kit.catalogs import make_catalog
from kit.worlds.replays import RuleChat, recorded, truth, wrong
from kit.worlds.unlabelled import BIG_USD, MINI_USD, catalog, rows_of, unlabelled

import vinelm
from vinelm.errors import ConfigError
from vinelm.profiler import ExecutionConfig, RayCluster, WorkflowSource
from vinelm.replay.traced import Traces, is_entry_of
from vinelm.rows.observation import at_ordinary_prices
from vinelm.traces import ObservationStore

COUNT, RECORDED_USD = 40, 0.03


def today(number):
    return wrong(number) if number % 5 == 0 else truth(number)


def traced(count=COUNT, **changes):
    """Calls as the application of ``unlabelled`` makes them, at another temperature."""
    calls = recorded(count, today, step="solve", system="", model="big", cost_usd=RECORDED_USD, seconds=2.5)
    found = Traces()
    for call in calls:
        found.calls[call.request] = [replace(call, settings={"temperature": 0.7}, **changes)]
    return found


def run(path, models, traces, **settings):
    settings = {"sampler": "exhaustive", "coverage": 1.0, "budget_usd": 100.0, **settings}
    return vinelm.profile(unlabelled(COUNT), models, path, recorded=traces, **settings)


def committed_usd(path):
    with ObservationStore.open(path) as store:
        return store.committed_usd()


@pytest.mark.parametrize("workers", [1, 4])
def test_recorded_calls_are_not_made_and_their_dollars_are_those_of_the_trace(tmp_path, workers):
    big, notes = RuleChat(rule=truth), []
    execution = ExecutionConfig(isolation="thread", workers=workers)
    run(tmp_path / "a.db", catalog(truth, big), traced(), execution=execution, on_note=notes.append)
    assert big.asked == []
    assert f"{COUNT} calls were found in the traces: the recorded answers count, and cost nothing" in notes
    assert committed_usd(tmp_path / "a.db") == pytest.approx(COUNT * MINI_USD)
    rows = {(row.request_id, row.prefix): row for row in at_ordinary_prices(rows_of(tmp_path / "a.db"))}
    for number in range(COUNT):
        mine, other = rows[f"r{number}", ("big",)], rows[f"r{number}", ("mini",)]
        assert json.loads(mine.answer) == today(number)
        assert (mine.cost_usd, other.cost_usd) == (RECORDED_USD, MINI_USD)
        assert mine.latency_s == pytest.approx(2.5, abs=0.5)


def test_a_free_answer_does_not_make_a_model_cheap(tmp_path):
    """Neither for an estimate nor for what a profile takes for the dollars of the whole."""
    found = run(tmp_path / "a.db", catalog(truth, RuleChat(rule=truth)), traced())
    assert found.exhaustive_usd == pytest.approx(COUNT * (MINI_USD + RECORDED_USD))
    assert found.spent_usd == pytest.approx(COUNT * MINI_USD)


def test_only_equal_prompts_of_the_same_model_have_recorded_answers(tmp_path):
    big, notes = RuleChat(rule=truth), []
    run(tmp_path / "a.db", catalog(truth, big), traced(model="small"), on_note=notes.append)
    assert len(big.asked) == COUNT
    assert any("no call was found in the traces" in note for note in notes)
    run(tmp_path / "b.db", catalog(truth, half := RuleChat(rule=truth)), traced(COUNT // 2))
    assert sorted(number for number, _ in half.asked) == list(range(COUNT // 2, COUNT))
    assert committed_usd(tmp_path / "b.db") == pytest.approx(COUNT * MINI_USD + COUNT // 2 * BIG_USD)


def test_a_prompt_with_two_answers_has_none(tmp_path):
    traces, big = traced(), RuleChat(rule=truth)
    first = traces.calls["r0"][0]
    traces.calls["again"] = [replace(first, request="again", answer={"role": "assistant", "content": "otherwise"})]
    run(tmp_path / "a.db", catalog(truth, big), traces)
    assert [number for number, _ in big.asked] == [0]


def test_the_next_run_finds_what_is_there_and_a_run_without_traces_does_not_use_them(tmp_path):
    run(tmp_path / "a.db", catalog(truth, big := RuleChat(rule=truth)), traced(COUNT // 2), coverage=0.3)
    run(tmp_path / "a.db", catalog(truth, big), traced())
    assert big.asked == []
    run(tmp_path / "b.db", catalog(truth, big), None)
    assert len(big.asked) == COUNT


def test_where_calls_share_nothing_recorded_ones_are_refused(tmp_path):
    source = WorkflowSource(function="kit.worlds.unlabelled:unlabelled")
    execution = ExecutionConfig(isolation="process", cluster=RayCluster(), source=source)
    with pytest.raises(ConfigError, match="no effect in batches or on a cluster"):
        run(tmp_path / "a.db", catalog(truth, truth), traced(), execution=execution)


@pytest.mark.parametrize(
    ("recorded", "is_it"), [("big", True), ("openai/big", True), ("big-2025-08-07", True), ("big-mini", False), ("", False)]
)
def test_a_dated_name_is_the_same_model(recorded, is_it):
    entry = make_catalog(1)["m0"].model_copy(update={"name": "strong", "model_id": "big"})
    assert is_entry_of(entry, recorded) is is_it
