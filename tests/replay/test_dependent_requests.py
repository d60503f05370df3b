"""Requests that are not independent, and traces that are no random sample: the proof still holds, and says what it did."""

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
from kit.plays import play
from kit.worlds.replays import answered, differs, models, recorded, truth, wrong

from vinelm.errors import ConfigError
from vinelm.proof import Candidate
from vinelm.replay import replay
from vinelm.replay.kept import ReplayUnit, Sample, opened
from vinelm.replay.labels import put_label
from vinelm.replay.replaying import MOST_TOGETHER, StepRun

WORLDS = 240
MOST = 0.05 + 3 * math.sqrt(0.05 * 0.95 / WORLDS)
LOSS = 0.1
DAY_S = 86_400.0
PLAN = [Candidate("a", 0.5, LOSS)]


def chats(sizes):
    """One call for each turn; turns of a chat have its conversation."""
    calls = recorded(sum(sizes))
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return [dataclasses.replace(call, conversation=f"chat {owner}") for call, owner in zip(calls, owners, strict=True)]


def units_of(calls, seed=0, **how):
    rows = [{name: value for name, value in row.items() if name != "prompt"} for row in Sample(calls, seed=seed, **how).rows()]
    return [ReplayUnit(**row) for row in rows]


def step_of(units, **changes):
    return StepRun(None, units, None, [], candidates=PLAN, labels=200, **changes)


def proven(step, lost):
    """Whether a plan is proven that answers the requests in ``lost`` worse than today, and all others the same."""
    scores = np.array([-1.0 if unit.request in lost else 0.0 for unit in step.units[step.choosing :]])
    race = step.begun(max_loss=LOSS, margins=(), attempt=None)
    return play(race, {"a": (scores == 0.0, scores)})[0].reason == "proven"


def bare(clusters):
    """Units of these clusters, in this order."""
    same = {"step": "s", "title": "s", "call": "c", "model": "m", "weight": 1, "cost_usd": 1.0, "latency_s": 1.0}
    same |= {"tokens_in": 1, "tokens_out": 1, "answer": {}}
    return [ReplayUnit(**same, unit_id=at, request=str(at), cluster=str(one)) for at, one in enumerate(clusters)]


@pytest.mark.parametrize("rival", [pytest.param("each request for itself", marks=pytest.mark.long), "each chat once"])
def test_chats_whose_turns_fail_together_prove_nothing_false(rival):
    """All turns of a chat fail together, and in the mean a request loses just the margin.

    Taken one by one, equal chats prove what they must not. If long chats alone fail, it is so where each chat counts once.
    """
    false = Counter()
    sizes = [5] if rival == "each request for itself" else [1, 5]
    for world in range(WORLDS):
        rng = np.random.default_rng([world, 21])
        chats_ = rng.choice(sizes, 120)
        failed = (chats_ == 5) & (rng.random(120) < LOSS * sum(sizes) / 5)
        owners = np.repeat(np.arange(120), chats_)
        order = rng.permutation(len(owners)) if len(sizes) == 1 else np.arange(len(owners))
        whole, other = step_of(bare(owners)), step_of(bare(order if len(sizes) == 1 else owners))
        assert whole.together == MOST_TOGETHER
        false["whole"] += proven(whole, {str(at) for at in np.flatnonzero(failed[owners])})
        if len(sizes) == 2:
            other.together = 1
        false["other"] += proven(other, {str(at) for at in np.flatnonzero(failed[owners[order]])})
    assert false["whole"] / WORLDS <= MOST
    assert false["other"] / WORLDS > 1.2 * MOST


def test_a_plan_that_loses_nothing_is_proven_with_chats_too():
    calls = chats([1, 2, 1, 3, 1, 1, 2, 1] * 60)
    assert proven(step_of(units_of(calls)), set())


def test_the_units_of_a_chat_stay_together_and_none_of_it_both_chooses_and_proves():
    units = units_of(chats([7] * 100))
    assert len({unit.cluster for unit in units}) == 100
    changes = sum(one.cluster != other.cluster for one, other in zip(units[1:], units[:-1], strict=True))
    assert changes == 99
    step = step_of(units)
    assert Counter(unit.cluster for unit in step.units).most_common(1)[0][1] == MOST_TOGETHER
    chosen, proving = ({unit.cluster for unit in part} for part in (step.units[: step.choosing], step.units[step.choosing :]))
    assert chosen
    assert proving
    assert not chosen & proving


def test_chats_that_cross_the_border_of_the_choosing_requests_choose_as_a_whole(tmp_path):
    step = step_of(units_of(chats([4] * 200)))
    assert step.choosing == 152
    (found,) = replay(chats([4] * 200), tmp_path / "a.db", models(nano=truth), budget_usd=20).steps
    assert found.advice == "switch"


def test_where_a_chat_stands_does_not_depend_on_its_length():
    places = {1: [], 6: []}
    for seed in range(40):
        units = units_of(chats([1] * 30 + [6] * 30), seed=seed)
        order = list(dict.fromkeys(unit.cluster for unit in units))
        sizes = Counter(unit.cluster for unit in units)
        for place, cluster in enumerate(order):
            places[sizes[cluster]].append(place)
    assert np.mean(places[1]) == pytest.approx(29.5, abs=4 * 17.3 / math.sqrt(1200))


def test_turns_of_a_chat_are_recognized_by_their_prompts():
    """Of the trace without sessions each prompt repeats the one before; two chats begin with the same word."""
    calls = []
    for chat in range(12):
        said = [{"role": "system", "content": "Be kind."}]
        for turn in range(4):
            said = [*said, {"role": "user", "content": "hi" if chat < 2 and not turn else f"chat {chat}, turn {turn}"}]
            name = f"{chat}/{turn}"
            calls += [dataclasses.replace(recorded(1)[0], request=name, call=name, messages=said)]
            said = [*said, {"role": "assistant", "content": f"answer {chat} {turn}"}]
    clusters = {unit.request: unit.cluster for unit in units_of(calls)}
    for chat in range(2, 12):
        assert len({clusters[f"{chat}/{turn}"] for turn in range(4)}) == 1
    assert clusters["0/0"] == clusters["1/0"]
    assert len(set(clusters.values())) == 10 + 3
    assert clusters["0/1"] == clusters["0/3"] != clusters["1/1"]


def test_a_few_equal_examples_in_each_prompt_make_no_chat():
    shown = [{"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": "2"}]
    calls = [dataclasses.replace(call, messages=[*shown, {"role": "user", "content": call.request}]) for call in recorded(30)]
    assert len({unit.cluster for unit in units_of(calls)}) == 30


def test_an_equal_question_is_asked_once_and_its_label_holds_for_all(tmp_path):
    calls = [
        dataclasses.replace(call, request=f"{call.request}/{time}", call=f"{call.call}/{time}")
        for call in recorded(300)
        for time in range(3)
    ]
    path, catalog = tmp_path / "a.db", models(nano=lambda number: wrong(number) if differs(number, 0.03, 5) else truth(number))
    found = replay(calls, path, catalog, budget_usd=20)
    (step,) = found.steps
    assert step.waiting > 2
    with opened(path) as store:
        asked = [store.units[row["unit_id"]] for row in store.rows.questions() if row["is_open"]]
    assert len({unit.cluster for unit in asked}) == len(asked) == step.waiting
    numbers = set()
    for _ in range(20):
        with opened(path) as store:
            numbers |= {store.units[row["unit_id"]].cluster for row in store.rows.questions()}
        if not answered(path):
            break
        found = replay(calls, path, catalog, budget_usd=20)
    with opened(path) as store:
        questions = store.rows.questions()
    assert len({store.units[row["unit_id"]].cluster for row in questions}) == len(questions)
    (step,) = found.steps
    assert step.labels > len(questions)  # each label holds for the three requests of its prompt
    assert any("its 900 sampled requests are 300 conversations or prompts" in line for line in step.notes)


def test_one_conversation_is_no_sample_and_that_is_said(tmp_path):
    calls = [dataclasses.replace(call, conversation="all") for call in recorded(400)]
    (step,) = replay(calls, tmp_path / "a.db", models(nano=truth), budget_usd=20).steps
    assert step.advice == "not enough data"
    assert step.why == (
        "5 requests can be compared, and 50 are needed: 395 others are of the same conversations, or repeat a prompt"
    )


# -- weights -----------------------------------------------------------------------------------------------------


def kinds(calls, weight):
    """Calls of which the first half stands for so many each."""
    return [dataclasses.replace(call, stands_for=weight if int(call.request[1:]) < len(calls) // 2 else 1) for call in calls]


@pytest.mark.parametrize("requests", [200, 5000])
@pytest.mark.parametrize("weight", [3.0, 0.25])
def test_requests_are_drawn_in_proportion_to_what_they_stand_for(weight, requests):
    heavy, all_ = 0, 0
    for seed in range(10):
        sample = Sample(kinds(recorded(1000), weight), seed=seed, requests=requests)
        units = list(sample.rows())
        heavy += sum(int(row["request"][1:]) < 500 for row in units)
        all_ += len(units)
        (weighing,) = sample.weighed.values() or [None]
        assert weighing.used == len(units) <= weighing.sampled <= requests
    share = weight / (weight + 1)
    assert heavy / all_ == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / all_))
    halves = [int(row["request"][1:]) < 500 for row in units]
    first, second = halves[: len(halves) // 2], halves[len(halves) // 2 :]
    assert abs(np.mean(first) - np.mean(second)) < 4 * math.sqrt(1 / len(halves))


def test_equal_weights_leave_nothing_out():
    calls = [dataclasses.replace(call, stands_for=20) for call in recorded(300)]
    sample = Sample(calls, seed=0)
    assert [row["request"] for row in sample.rows()] == [row["request"] for row in Sample(recorded(300), seed=0).rows()]
    assert sample.weighed == {}
    assert sample.bill.cost_usd == pytest.approx(20 * Sample(recorded(300), seed=0).bill.cost_usd)


def test_a_weight_counts_five_times_the_mean_at_most():
    calls = [dataclasses.replace(call, stands_for=1000 if call.request == "r7" else 1) for call in recorded(500)]
    sample = Sample(calls, seed=0)
    (weighing,) = sample.weighed.values()
    assert weighing.cut == 1
    assert weighing.used == len(list(sample.rows())) > 20


def burst(count=1200):
    """One day of ten has two thirds of the calls."""
    return [
        dataclasses.replace(call, started_at=1.7e9 + DAY_S * (4 if number % 3 else number // 3 % 10))
        for number, call in enumerate(recorded(count))
    ]


def test_each_day_counts_the_same_if_that_is_wanted():
    calls = {call.request: int(call.started_at // DAY_S) for call in burst()}
    usual = Counter(calls[row["request"]] for row in Sample(burst(), seed=1).rows())
    even = Counter(calls[row["request"]] for row in Sample(burst(), seed=1, even_days=True).rows())
    assert max(usual.values()) > 15 * min(usual.values())
    assert max(even.values()) < 2 * min(even.values())
    assert len(even) == 10


def test_a_plan_that_fails_on_usual_days_is_not_proven_by_a_day_of_many_calls(tmp_path):
    calls = burst()
    usual = {int(call.request[1:]) for call in calls if int(call.started_at // DAY_S) != int((1.7e9 + 4 * DAY_S) // DAY_S)}
    catalog = models(nano=lambda number: wrong(number) if number in usual and differs(number, 0.12) else truth(number))

    def ended(path, **options):
        for _ in range(30):
            found = replay(calls, path, catalog, budget_usd=20, max_loss=0.08, **options)
            if not found.waiting:
                return found.steps[0]
            assert answered(path)
        raise AssertionError

    assert ended(tmp_path / "a.db").advice == "switch"
    step = ended(tmp_path / "b.db", weights="days")
    assert step.advice != "switch"
    assert any(line.startswith("each day counts the same: ") for line in step.notes)
    assert not any("of one day" in line for line in step.notes)


def test_weights_of_a_function_are_said_and_belong_to_the_store(tmp_path):
    def weight(call):
        return 4.0 if int(call.request[1:]) % 2 else 1.0

    (step,) = replay(recorded(900), tmp_path / "a.db", models(nano=truth), budget_usd=20, weights=weight).steps
    assert step.usd == pytest.approx(2.5 * 900 * 0.01, rel=0.03)
    (line,) = [line for line in step.notes if "in proportion to the calls that they represent" in line]
    assert "weight: " in line
    with pytest.raises(ConfigError):
        replay(recorded(900), tmp_path / "a.db", models(nano=truth), budget_usd=20)


@pytest.mark.parametrize("said", [-1.0, math.nan, None, "4", True])
def test_weights_that_are_none_are_one_line(said, tmp_path):
    with pytest.raises(ConfigError, match="return how many calls this one represents"):
        replay(recorded(60), tmp_path / "a.db", models(nano=truth), budget_usd=20, weights=lambda call: said)


def test_weights_that_fail_are_one_line_without_the_prompt(tmp_path):
    def fails(call):
        raise ValueError(call.messages)

    with pytest.raises(ConfigError, match=r"^weights fails with ValueError: mend the function$"):
        replay(recorded(60), tmp_path / "a.db", models(nano=truth), budget_usd=20, weights=fails)


# -- several people, several steps -------------------------------------------------------------------------------


def test_people_who_disagree_are_said_and_their_mean_counts(tmp_path):
    path, calls = tmp_path / "a.db", recorded(900)
    catalog = models(nano=lambda number: wrong(number) if differs(number, 0.03, 5) else truth(number))
    replay(calls, path, catalog, budget_usd=20)
    with opened(path) as store:
        first, second = (row["question_id"] for row in store.rows.questions()[:2])
        for number, who, choice in (
            (first, "ann", "left"),
            (first, "bob", "0.5/1"),
            (second, "ann", "both"),
            (second, "bob", "both"),
        ):
            put_label(store, number, choice, who)
    (step,) = replay(calls, path, catalog, budget_usd=20).steps
    assert "2 questions answered by several people, who disagree on 1: the mean counts" in step.notes


def test_several_switches_say_in_how_many_requests_any_answer_differs(tmp_path):
    calls = [*recorded(700), *(dataclasses.replace(call, call=f"b{call.call}") for call in recorded(700, step="route"))]

    def rule(number):
        return wrong(number) if number % 100 == 7 else truth(number).upper()

    path = tmp_path / "a.db"
    for _ in range(20):
        found = replay(calls, path, models(nano=rule), budget_usd=20)
        if not answered(path, choose=lambda question: "both"):
            break
    assert [step.advice for step in found.steps] == ["switch", "switch"]
    assert found.any_differs == (7, 700)
    assert found.together.endswith("In 1.0 % of 700 requests at least one of their answers differs.")
