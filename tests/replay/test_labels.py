"""Questions to persons, and what they say."""

import shutil
import subprocess
import sys

import pytest
from kit.worlds.replays import LABELS, differs, models, recorded, truth

from vinelm.errors import ConfigError, StoreError
from vinelm.replay import replay
from vinelm.replay.kept import opened
from vinelm.replay.labels import LEASE_S, next_questions, put_label, scores, undo_label
from vinelm.traces import ObservationStore, StoreIdentity


@pytest.fixture
def path(asking, tmp_path):
    return shutil.copy(asking, tmp_path / "a.db")


def test_questions_are_blind_and_have_the_prompt(path):
    with opened(path) as store:
        questions = next_questions(store, 10, "ann")
        rows = {row["question_id"]: row for row in store.rows.questions()}
        units = {one.number: store.units[rows[one.number]["unit_id"]] for one in questions}
        sides = {bool(rows[one.number]["is_today_left"]) for one in questions}
    assert sides == {True, False}
    for one in questions:
        today, other = (one.left, one.right) if rows[one.number]["is_today_left"] else (one.right, one.left)
        assert today == units[one.number].answer
        assert other != today
        assert one.messages[-1]["content"].startswith("Question ")
        assert one.step == "grade"
        assert one.tools == []


def test_two_persons_get_different_questions_until_some_minutes_have_passed(path):
    with opened(path) as ann, opened(path) as bob:
        first = [one.number for one in next_questions(ann, 3, "ann", now_s=1000.0)]
        second = [one.number for one in next_questions(bob, 100, "bob", now_s=1001.0)]
        assert not set(first) & set(second)
        assert [one.number for one in next_questions(ann, 3, "ann", now_s=1002.0)] == first
        assert next_questions(bob, 100, "carl", now_s=1003.0) == []
        late = 1002.0 + LEASE_S
        assert {one.number for one in next_questions(bob, 100, "carl", now_s=late)} == {*first, *second}


def test_of_two_who_ask_at_the_same_moment_one_gets_a_question(path):
    with opened(path) as ann, opened(path) as bob:
        before = bob.rows.questions()
        bob.rows.questions = lambda: before  # what he read before she was given hers
        first = [one.number for one in next_questions(ann, 3, "ann", now_s=1000.0)]
        second = [one.number for one in next_questions(bob, 3, "bob", now_s=1000.0)]
    assert len(first) == len(second) == 3
    assert not set(first) & set(second)


_LABELS = """
import sys
from vinelm.replay.kept import opened
from vinelm.replay.labels import next_questions, put_label
with opened(sys.argv[1]) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for asked in iter(lambda: next_questions(store, 1, sys.argv[2]), []):
        if asked[0].number in {label["question_id"] for label in store.rows.labels()}:
            break  # only those are left that the other one has answered
        put_label(store, asked[0].number, "both", sys.argv[2])
"""


@pytest.mark.usefixtures("warm_python")
def test_two_processes_label_each_question_once(path):
    line = [sys.executable, "-c", _LABELS, str(path)]
    both = [subprocess.Popen([*line, who], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for who in ("ann", "bob")]
    for one in both:
        assert one.stdout.readline() == "ready\n"
    for one in both:
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in both:
        one.communicate(timeout=120)
    assert [one.returncode for one in both] == [0, 0]
    with opened(path) as store:
        questions = [row["question_id"] for row in store.rows.questions() if row["is_open"]]
        labels = [label["question_id"] for label in store.rows.labels()]
    assert sorted(labels) == questions


def test_a_question_of_another_is_given_last_and_the_mean_of_both_counts(path):
    with opened(path) as store:
        questions = [one.number for one in next_questions(store, 100, "ann", now_s=1000.0)]
        put_label(store, questions[0], "left", "ann", now_s=1001.0)
        assert questions[0] not in [one.number for one in next_questions(store, 100, "ann", now_s=1002.0)]
        others = [one.number for one in next_questions(store, 100, "bob", now_s=5000.0)]
        assert others == [*questions[1:], questions[0]]
        (alone,) = scores(store).values()
        put_label(store, questions[0], "both", "bob")
        ((number, mean),) = scores(store).values()
    assert abs(alone[1]) == 1.0
    assert (number, mean) == (questions[0], alone[1] / 2)


@pytest.mark.parametrize(("choice", "value"), [("left", -1.0), ("right", 1.0), ("both", 0.0), ("neither", 0.0), ("skip", None)])
def test_what_a_choice_says(choice, value, path):
    with opened(path) as store:
        (question, *_) = next_questions(store, 1, "ann")
        put_label(store, question.number, choice, "ann")
        row = next(row for row in store.rows.questions() if row["question_id"] == question.number)
        _, score = scores(store)[row["unit_id"], row["model"]]
    assert score == (value if value is None or row["is_today_left"] else -value)


def test_the_last_word_of_a_person_counts_and_can_be_taken_back(path):
    with opened(path) as store:
        (one, two) = (question.number for question in next_questions(store, 2, "ann"))
        for number, choice in ((one, "left"), (two, "right"), (two, "left"), (two, "skip")):
            put_label(store, number, choice, "ann")
        assert [score for number, score in scores(store).values() if number == two] == [None]
        assert undo_label(store, "bob") is None
        assert undo_label(store, "ann") == two
        assert {number for number, _ in scores(store).values()} == {one, two}
        assert [undo_label(store, "ann") for _ in range(4)] == [two, two, one, None]
        assert scores(store) == {}


def test_skipped_questions_count_as_lost_and_the_verdict_says_so(tmp_path):
    rule = lambda number: LABELS[(number + 1) % 4] if differs(number, 0.03) else truth(number)  # noqa: E731
    path, calls, catalog = tmp_path / "a.db", recorded(700), models(nano=rule)
    while (found := replay(calls, path, catalog, budget_usd=20)).waiting:
        with opened(path) as store:
            for question in next_questions(store, 50, "ann"):
                put_label(store, question.number, "skip", "ann")
    (step,) = found.steps
    assert step.advice != "switch"
    assert step.skipped == step.labels > 0
    assert f"({step.skipped} skipped, counted as lost)" in step.sentence or step.advice == "keep"


def test_what_is_no_question_or_choice_is_refused(path, tmp_path):
    with opened(path) as store:
        with pytest.raises(ConfigError, match="the choice 'maybe' is unknown"):
            put_label(store, 1, "maybe")
        with pytest.raises(ConfigError, match="there is no question 4711"):
            put_label(store, 4711, "left")
    with pytest.raises(StoreError, match="no such store"), opened(tmp_path / "none.db"):
        pass
    identity = StoreIdentity(workflow="other", template={}, catalog={}, dataset_digest="", fingerprint={}, is_simulated=False)
    ObservationStore.create(tmp_path / "other.db", identity).close()
    with pytest.raises(StoreError, match="has no questions"), opened(tmp_path / "other.db"):
        pass
