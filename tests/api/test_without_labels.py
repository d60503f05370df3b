"""A profile of requests without labels: today's answers count until persons say otherwise, and only what differs is asked."""

import os
import re
import shutil
from dataclasses import replace

import pytest
from kit.worlds.replays import LABELS, answered, differs, truth, wrong
from kit.worlds.unlabelled import (
    BIG_USD,
    MINI_USD,
    answer_of,
    catalog,
    differing,
    failing,
    questions_of,
    rows_of,
    unlabelled,
)

import vinelm
from vinelm.api.references import ask
from vinelm.errors import ConfigError, WorkflowError
from vinelm.evaluation.comparison.comparison import Comparison
from vinelm.evaluation.comparison.evidence import StoreEvidence
from vinelm.evaluation.comparison.referred_rows import ReferredRows
from vinelm.replay.kept import opened
from vinelm.replay.labels import next_questions, put_label, undo_label
from vinelm.traces import ObservationStore
from vinelm.traces.served.replayed import ReplayRows
from vinelm.trie.verdict import Verdict

COUNT, SHARE = 100, 0.03
MINI, BIG = differing(SHARE, salt=1), differing(SHARE, salt=2)
"""Each is wrong in other requests, so that nothing is lost where mini answers."""
UNLIKE = {f"r{number}" for number in range(COUNT) if MINI(number) != BIG(number)}


def run(path, workflow=None, models=None, **settings):
    settings = {"sampler": "exhaustive", "coverage": 1.0, "budget_usd": 100.0, **settings}
    return vinelm.profile(workflow or unlabelled(COUNT), models or catalog(MINI, BIG), path, **settings)


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    """A store that waits for persons."""
    path = tmp_path_factory.mktemp("asking") / "a.db"
    run(path)
    return path


@pytest.fixture
def path(asking, tmp_path):
    return shutil.copy(asking, tmp_path / "a.db")


def verdict_of(path, **settings):
    return Comparison.of(StoreEvidence.of(path)).verdict(**settings)


def scored(path):
    """The score of each answer, by request and model."""
    with ObservationStore.open(path) as store:
        rows = ReferredRows.of_store(store).scored(store.observations())
    return {(row.request_id, row.model): row.success for row in rows}


def mini_of(verdict):
    return next(plan for plan in verdict.plans if plan.words == "solve mini")


def test_only_what_differs_is_asked_and_until_then_it_counts_as_lost(path):
    assert questions_of(path) == UNLIKE
    assert all(row.success is None and row.answer for row in rows_of(path))  # nobody has scored them
    found = scored(path)
    assert all(found[f"r{number}", "big"] is True for number in range(COUNT))
    assert {name for (name, model), score in found.items() if model == "mini" and score is False} == UNLIKE
    verdict = verdict_of(path)
    assert (verdict.advice, verdict.waiting) == ("undecided", len(UNLIKE))
    assert mini_of(verdict).gain == pytest.approx(-len(UNLIKE) / COUNT)


def test_the_words_claim_no_accuracy_where_only_agreement_is_known(path):
    sentence = verdict_of(path).sentence
    assert "as today's answers count" in sentence
    assert f"{len(UNLIKE)} questions wait" in sentence
    assert " right" not in sentence
    trie = vinelm.estimate(path)
    assert trie.meta["as_today"] == {"requests": COUNT, "asked": 0, "registered": COUNT}
    assert trie.verdict.sentence == Verdict.from_dict(trie.verdict.held()).sentence


def test_persons_who_know_the_truth_prove_what_loses_nothing(path):
    assert answered(path) == len(UNLIKE)
    assert run(path).executed == 0
    verdict, found = verdict_of(path), scored(path)
    assert verdict.advice == "switch"
    assert verdict.plan.words == "solve mini"
    assert verdict.waiting == 0
    assert questions_of(path) == set()
    better = {number for number in range(COUNT) if MINI(number) == truth(number) != BIG(number)}
    worse = {number for number in range(COUNT) if BIG(number) == truth(number) != MINI(number)}
    assert mini_of(verdict).gain == pytest.approx((len(better) - len(worse)) / COUNT)
    assert all((found[f"r{one}", "big"], found[f"r{one}", "mini"]) == (0.0, 1.0) for one in better)


def test_with_some_labels_never_more_is_claimed_than_with_all(asking, tmp_path):
    ends = []
    for count in range(0, len(UNLIKE) + 1, 2):
        path = shutil.copy(asking, tmp_path / f"{count}.db")
        answered(path, most=count)
        ends.append(mini_of(verdict_of(path)).gain_low)
    assert ends == sorted(ends)


def test_a_plan_whose_answers_are_worse_is_not_proven(path):
    answered(path, choose=lambda question: "left" if question.left["content"] == BIG(number_of(question)) else "right")
    verdict = verdict_of(path)
    assert not (verdict.advice == "switch" and verdict.share == 1.0)
    assert mini_of(verdict).gain == pytest.approx(-len(UNLIKE) / COUNT)


def number_of(question):
    return int(re.findall(r"\d+", question.messages[-1]["content"])[0])


def test_a_skipped_question_counts_as_lost_and_is_not_asked_again(path):
    answered(path, choose=lambda _: "skip")
    run(path)
    assert questions_of(path) == set()
    assert mini_of(verdict_of(path)).gain == pytest.approx(-len(UNLIKE) / COUNT)


def test_of_two_persons_who_contradict_each_other_the_mean_counts(path):
    with opened(path) as store:
        (question,) = next_questions(store, 1, "ann")
        put_label(store, question.number, "left", "ann")
        put_label(store, question.number, "right", "bob")
        request = store.units[store.rows.questions()[question.number - 1]["unit_id"]].request
    found = scored(path)
    assert (found[request, "big"], found[request, "mini"]) == (0.5, 0.5)
    with opened(path) as store:
        undo_label(store, "ann")
        undo_label(store, "bob")
    assert (scored(path)[request, "big"], scored(path)[request, "mini"]) == (True, False)


def test_requests_with_a_label_count_as_they_always_did(tmp_path):
    path, half = tmp_path / "a.db", COUNT // 2
    run(path, unlabelled(COUNT, labelled=half))
    rows = {(row.request_id, row.model): row.success for row in rows_of(path)}
    for number in range(half):
        assert rows[f"r{number}", "mini"] is (MINI(number) == truth(number))
        assert rows[f"r{number}", "big"] is (BIG(number) == truth(number))
    assert questions_of(path) == {name for name in UNLIKE if int(name[1:]) >= half}
    assert f"on {COUNT - half} of {COUNT} requests" in verdict_of(path).sentence


def test_where_today_fails_no_answer_counts_and_none_is_asked(tmp_path):
    path = tmp_path / "a.db"
    run(path, models=catalog(MINI, failing(BIG, lambda number: number % 10 == 0)))
    found = scored(path)
    assert all(found[f"r{number}", "mini"] is False for number in range(0, COUNT, 10))
    assert questions_of(path) == {name for name in UNLIKE if int(name[1:]) % 10}
    verdict = verdict_of(path)
    assert mini_of(verdict).gain_low < 0.0
    assert f"What runs today failed on {COUNT // 10} requests" in verdict.sentence


def test_a_cap_on_money_ends_the_run_and_what_was_bought_is_compared(tmp_path):
    path, cap = tmp_path / "a.db", 40 * (BIG_USD + MINI_USD)
    result = run(path, budget_usd=cap, coverage=None)
    assert result.stopped_by == "budget"
    with ObservationStore.open(path) as store:
        assert store.committed_usd() <= cap
        assert len(ReferredRows.of_store(store).answers) >= 30
    run(path)
    assert questions_of(path) == UNLIKE


def test_a_killed_run_goes_on_and_asks_the_same(tmp_path, asking):
    path = tmp_path / "a.db"
    calls = []

    def killed(number):
        calls.append(number)
        if len(calls) > 60:
            os._exit(9)
        return MINI(number)

    child = os.fork()
    if not child:
        run(path, models=catalog(killed, BIG))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert 0 < len(rows_of(path)) < 2 * COUNT
    run(path)
    assert questions_of(path) == questions_of(asking) == UNLIKE


def test_labels_outlive_a_killed_run_and_rows_are_bought_once(path):
    labelled = answered(path, most=3)
    before = len(rows_of(path))
    run(path)
    with ObservationStore.open(path) as store:
        assert ReferredRows.of_store(store).asked == labelled
    assert len(rows_of(path)) == before


def test_another_way_to_read_the_answer_is_applied_without_a_call(path):
    workflow = unlabelled(COUNT)
    by_initial = vinelm.as_today(lambda state: {"said": state["answer"][0], "why": state["answer"]}, ignore=("why",))
    changed = replace(workflow, score=by_initial)
    assert run(path, changed).executed == 0
    assert all('"said"' in row.answer for row in rows_of(path))
    first = {f"r{number}" for number in range(COUNT) if MINI(number)[0] != BIG(number)[0]}
    assert questions_of(path) == first


def test_a_label_that_comes_later_scores_the_rows_without_a_call(path):
    workflow = unlabelled(COUNT, labelled=COUNT // 2)
    assert run(path, workflow).executed == 0
    assert sum(row.success is not None for row in rows_of(path)) == 2 * (COUNT // 2)
    assert questions_of(path) == {name for name in UNLIKE if int(name[1:]) >= COUNT // 2}


def test_with_labels_for_all_the_verdict_is_an_ordinary_one(path):
    run(path, unlabelled(COUNT, labelled=COUNT))
    verdict = verdict_of(path)
    assert verdict.by_today is None
    assert "as today's answers count" not in verdict.sentence
    assert questions_of(path) == set()


def test_where_the_same_may_differ_in_score_a_share_is_asked_and_nothing_is_proven_before(tmp_path):
    path = tmp_path / "a.db"
    long = lambda rule: lambda number: f"I would say that the right label of this one is {rule(number)}, {number}"  # noqa: E731
    mini, big = long(lambda number: truth(number).upper()), long(truth)
    same = lambda one, other: one.casefold() == other.casefold()  # noqa: E731
    run(path, unlabelled(COUNT, same=same), catalog(mini, big))
    assert questions_of(path) == set()  # so few could not bound what is hidden to three points
    verdict = verdict_of(path, max_loss=0.2)
    assert 10 <= verdict.waiting <= 60  # a fifth of the answers, none of which is the same text
    assert mini_of(verdict).hidden == 1.0
    assert verdict.advice != "switch"
    with ObservationStore.open(path) as store:
        ask(store, verdict)
    answered(path, choose=lambda _: "both")
    verdict = verdict_of(path, max_loss=0.2)
    assert 0.0 < mini_of(verdict).hidden < 0.5
    assert "need not be as good" in verdict.sentence
    assert mini_of(verdict).gain_low < -mini_of(verdict).hidden


def test_what_cannot_be_proven_is_said_and_not_asked(tmp_path):
    path = tmp_path / "a.db"
    run(path, models=catalog(lambda number: LABELS[(number * 7919 + 1 + number % 2) % 4], truth))
    assert questions_of(path) == set()
    verdict = verdict_of(path)
    assert verdict.advice in ("keep", "undecided")
    assert verdict.waiting == 0


def test_what_runs_today_and_its_answer_have_to_be_known(tmp_path):
    workflow = unlabelled(5)
    unknown = replace(workflow, template=vinelm.Template((vinelm.Stage("solve"),)))
    with pytest.raises(WorkflowError, match="it is not known what runs today"):
        run(tmp_path / "a.db", unknown)
    with pytest.raises(WorkflowError, match="the oracle stop"):
        run(tmp_path / "b.db", stop="oracle")
    with pytest.raises(WorkflowError, match="says what an answer is"):
        run(tmp_path / "c.db", replace(workflow, score=vinelm.as_today()))
    with pytest.raises(WorkflowError, match="both say what an answer is"):
        run(tmp_path / "d.db", replace(workflow, answer=("answer",)))
    with pytest.raises(WorkflowError, match="go together"):
        vinelm.as_today(answer_of, labels=("label",))
    with pytest.raises(ConfigError, match="same: os:nothing: 'os' has no attribute 'nothing'"):
        vinelm.as_today(answer_of, same="os:nothing")


def test_an_answer_that_cannot_be_read_is_a_failure_of_the_request(tmp_path):
    path = tmp_path / "a.db"
    workflow = replace(unlabelled(20), score=vinelm.as_today(lambda state: state["nothing"]))
    run(path, workflow, keep_going=True)
    assert {row.detail.split(" at ")[0] for row in rows_of(path)} == {"answer raised KeyError"}


def test_what_persons_have_said_since_an_estimate_counts(path):
    trie = vinelm.estimate(path)
    assert vinelm.evaluate(path, trie).verdict == trie.verdict
    assert answered(path) == len(UNLIKE)
    assert vinelm.evaluate(path, trie).verdict.advice == "switch"
    assert vinelm.evaluate(path, trie, max_loss=0.2).verdict.max_loss == 0.2


def test_at_another_loss_the_questions_are_those_of_that_loss(path):
    trie = vinelm.estimate(path)
    found = vinelm.evaluate(path, trie, max_loss=0.001).verdict
    assert (found.waiting, found.by_today.plan) == (0, "solve mini")
    assert found.by_today.needed > COUNT


def test_persons_are_sent_to_their_questions_only_where_these_are_put(path):
    assert "`vinelm label`" in verdict_of(path).sentence
    with ObservationStore.open(path) as store:
        ReplayRows(store).open_questions(())
    sentence = verdict_of(path).sentence
    assert f"{len(UNLIKE)} questions would be asked" in sentence
    assert "`vinelm label`" not in sentence


def test_which_of_the_same_answers_are_audited_depends_on_the_request(tmp_path):
    path, text = tmp_path / "a.db", "I would say that this one is long enough to be no label at all"
    same = lambda one, other: one.casefold() == other.casefold()  # noqa: E731
    run(path, unlabelled(100, same=same), catalog(lambda _: text.upper(), lambda _: text))
    with ObservationStore.open(path) as store:
        audited = sum(
            about.is_audited for answers in ReferredRows.of_store(store).answers.values() for about in answers.values()
        )
    assert 10 <= audited <= 30  # a fifth of 100 pairs of the same two texts


def test_how_many_requests_would_do_counts_requests_and_not_those_that_followed(tmp_path):
    path = tmp_path / "a.db"
    run(path, unlabelled(COUNT), catalog(differing(0.15, salt=1), truth), coverage=None, budget_usd=40 * (BIG_USD + MINI_USD))
    verdict = verdict_of(path)
    assert verdict.by_today.requests == verdict.requests == COUNT  # none of which has a label
    with ObservationStore.open(path) as store:
        assert len(ReferredRows.of_store(store).answers) < COUNT / 2
    assert verdict.by_today.needed > COUNT
    assert " of 150 requests" not in verdict.sentence


def test_a_verification_needs_labels(path):
    trie = vinelm.estimate(path)
    with pytest.raises(ConfigError, match="no request of workflow 'numbers' has a label"):
        vinelm.verify(path, trie, vinelm.Objective(maximize="accuracy"), workflow=unlabelled(COUNT), models=catalog(MINI, BIG))


def test_the_world_is_as_the_tests_take_it():
    assert 4 <= len(UNLIKE) <= 12
    assert {wrong(number) for number in range(20)} <= set(LABELS)
    assert any(differs(number, SHARE, 1) for number in range(COUNT))
