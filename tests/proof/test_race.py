"""A race: what it asks, what it proves, and how often it is wrong."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.crossed import crossed
from kit.plays import play, world

from vinelm.errors import ConfigError
from vinelm.proof import Ask, Candidate, Compare, Ended, PlanFacts, Question, Race, choose_candidates, labels_needed

ONE = [Candidate("a", 0.5, 0.1)]
THREE = [Candidate("a", 0.5, 0.3), Candidate("b", 0.4, 0.25), Candidate("c", 0.6, 0.35)]
WORLDS = 120
MOST = 0.05 + 3 * math.sqrt(0.05 * 0.95 / WORLDS)
"""Shares of false proofs above this are no chance: 5 % and three standard deviations."""


def race(candidates=ONE, **changes):
    return Race(candidates, **({"requests": 400, "attempt": None, "max_loss": 0.1, "margins": (0.1,)} | changes))


def false_proofs(differing, tied=0.3, loss=0.1, plans=1, verdicts=None, **changes):
    """Share of worlds in which a plan that loses just the margin is proven."""
    proven = 0
    for seed in range(WORLDS):
        rng = np.random.default_rng([seed, 7])
        names = [f"p{at}" for at in range(plans)]
        worlds = {name: world(rng, 400, differing, -loss, tied) for name in names}
        entrants = [Candidate(name, 0.5, differing) for name in names]
        said = None if verdicts is None else verdicts(rng, worlds["p0"][1])
        ended, _, _ = play(race(entrants, labels=120, judge=said is not None, seed=seed, **changes), worlds, said)
        proven += ended.reason == "proven"
    return proven / WORLDS


# -- the guarantee -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("differing", "tied"), [(0.15, 0.0), (0.3, 0.3), (0.6, 0.7)])
def test_a_plan_that_loses_the_margin_is_proven_in_five_percent_at_most(differing, tied):
    assert false_proofs(differing, tied) <= MOST


def test_several_plans_that_all_lose_the_margin_share_the_five_percent():
    assert false_proofs(0.25, plans=4) <= MOST


@pytest.mark.parametrize(("judge", "size"), crossed(["good", "biased", "always better"], [1, 4]))
def test_a_judge_proves_nothing_false(judge, size):
    def verdicts(rng, scores):
        good = np.where(rng.random(len(scores)) < 0.9, np.sign(scores), -1.0)
        return {
            "good": good,
            "biased": np.maximum(good, rng.choice([-1.0, 1.0], len(scores))),
            "always better": good * 0 + 1.0,
        }[judge]

    assert false_proofs(0.3, verdicts=verdicts, clusters=[at // size for at in range(400)]) <= MOST


def hidden(audit, worlds=60):
    """Share of worlds that prove a loss below 8 points for a plan that loses 10 in answers that seem the same."""
    proven = 0
    for seed in range(worlds):
        plan = world(np.random.default_rng([seed, 9]), 1000, 0.1, 0.0, hidden=0.1 / 0.9)
        entrant = race(requests=1000, labels=400, audit=audit, max_loss=0.08, margins=(), seed=seed)
        proven += play(entrant, {"a": plan})[0].reason == "proven"
    return proven / worlds


def test_a_loss_in_answers_that_seem_the_same_is_seen_by_an_audit_only():
    assert hidden(audit=0.0) > 0.5
    assert hidden(audit=0.3) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 60)


def test_a_proof_with_an_audit_takes_more_labels_and_says_so():
    plan = world(np.random.default_rng(3), 4000, 0.1, 0.05)
    with_audit, without = race(requests=4000, audit=0.2), race(requests=4000)
    asked = [play(entrant, {"a": plan}) for entrant in (with_audit, without)]
    assert [ended.reason for ended, _, _ in asked] == ["proven", "proven"]
    assert asked[0][1] > 2 * asked[1][1]
    assert with_audit.standings()[0].audit == 0.2
    assert with_audit.standings()[0].labels == asked[0][1]


def test_repeated_requests_count_once_as_a_cluster():
    """Every request comes ten times. Taken as ten requests they would prove what one tenth of them cannot."""
    proven = {"clusters": 0, "requests": 0}
    for seed in range(60):
        same, scores = world(np.random.default_rng([seed, 11]), 60, 0.3, -0.1)
        plan = np.repeat(same, 10), np.repeat(scores, 10)
        whole = [Candidate("a", 0.5, 0.3)]
        as_one = race(whole, requests=600, clusters=np.repeat(np.arange(60), 10).tolist())
        proven["clusters"] += play(as_one, {"a": plan})[0].reason == "proven"
        proven["requests"] += play(race(whole, requests=600), {"a": plan})[0].reason == "proven"
    assert proven["clusters"] / 60 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 60)
    assert proven["requests"] > 2 * proven["clusters"]


def test_weights_undo_a_sample_that_shows_the_plan_at_its_best():
    """In half of what is served the plan loses 20 points, and in the sample this half is a tenth."""
    proven = {"weights": 0, "none": 0}
    for seed in range(60):
        rng = np.random.default_rng([seed, 13])
        hard = rng.random(800) < 0.1
        good, bad = world(rng, 800, 0.15, 0.0), world(rng, 800, 0.4, -0.2)
        plan = np.where(hard, bad[0], good[0]), np.where(hard, bad[1], good[1])
        weights = np.where(hard, 5.0, 0.5 / 0.9)
        proven["weights"] += (
            play(race(requests=800, weights=weights.tolist(), max_weight=5.0), {"a": plan})[0].reason == "proven"
        )
        proven["none"] += play(race(requests=800), {"a": plan})[0].reason == "proven"
    assert proven["weights"] / 60 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 60)
    assert proven["none"] > 45


# -- the power ---------------------------------------------------------------------------------------------------


def test_labels_are_those_of_the_rule_of_thumb():
    took = []
    for seed in range(80):
        plan = world(np.random.default_rng([seed, 17]), 3000, 0.1, 0.0)
        ended, questions, _ = play(race(requests=3000, max_loss=0.04, margins=()), {"a": plan})
        took.append(questions if ended.reason == "proven" else math.inf)
    half, most = labels_needed(0.1, 0.04)
    assert np.median(took) <= 1.15 * half
    assert np.quantile(took, 0.8, method="lower") <= 1.15 * most


def test_a_good_judge_saves_labels_and_takes_requests():
    took = {True: [], False: []}
    for judge, seed in ((judge, seed) for judge in took for seed in range(12)):
        same, scores = world(np.random.default_rng([seed, 19]), 8000, 0.15, 0.0)
        entrant = race([Candidate("a", 0.5, 0.15)], requests=8000, max_loss=0.05, margins=(), judge=judge, seed=seed)
        took[judge].append(play(entrant, {"a": (same, scores)}, np.sign(scores))[1:])
    labels, requests = np.array(took[True]).mean(0) / np.array(took[False]).mean(0)
    assert labels < 0.8
    assert 1.0 < requests < 4.0


def test_labels_go_to_the_plan_that_pays_most_and_the_better_one_is_found():
    """The first to be asked loses 20 points; the race turns to the second, which loses nothing."""
    first, second = Candidate("first", 0.6, 0.2), Candidate("second", 0.5, 0.2)
    found, spent = [], []
    for seed in range(20):
        rng = np.random.default_rng([seed, 23])
        plans = {"first": world(rng, 2000, 0.3, -0.2), "second": world(rng, 2000, 0.15, 0.0)}
        entrant = race([first, second], requests=2000, labels=200)
        assert entrant.next() == Ask("first", 0)
        found.append(play(entrant, plans)[0].candidate)
        spent.append(entrant.standings()[0].labels)
    assert found.count("second") >= 18
    assert np.mean(spent) < 40


def test_smaller_losses_are_proven_only_with_all_larger_ones():
    margins = (0.02, 0.05, 0.1)
    entrant = race(margins=margins, max_loss=0.1, requests=4000)
    plan = world(np.random.default_rng(29), 4000, 0.05, 0.02)
    ended, questions, _ = play(entrant, {"a": plan})
    assert (ended.reason, ended.candidate) == ("proven", "a")
    standing = entrant.standings()[0]
    assert standing.proven == ended.margin <= 0.1
    assert standing.needed[0.02] > standing.needed[0.1] == 0.0
    entrant.aim(0.02)
    ended, more, _ = play(entrant, {"a": plan})
    assert (ended.reason, ended.margin) == ("proven", 0.02)
    assert more > 0
    assert entrant.standings()[0].labels == questions + more


# -- what ends it ------------------------------------------------------------------------------------------------


def test_nothing_is_asked_where_nothing_can_be_proven():
    plans = [PlanFacts("a", 0.5, 60, 150)]
    entrant = Race(choose_candidates(plans, margin=0.01, labels=100), requests=500, labels=100, max_loss=0.01)
    assert entrant.next() == Ended("hopeless")
    assert Race([Candidate("a", 0.5, 0.4)], requests=500, labels=100, max_loss=0.01).next() == Ended("hopeless")


def test_a_plan_that_only_loses_is_given_up_early():
    same = np.arange(400) % 5 > 0
    ended, questions, _ = play(race(labels=30), {"a": (same, np.where(same, 0.0, -1.0))})
    assert ended.reason == "hopeless"
    assert questions < 20


def test_a_plan_is_not_given_up_for_bad_luck_that_it_can_still_make_good():
    """Three losses, then all as good: what the first labels say alone would end it."""
    scores = np.where(np.arange(4000) < 60, -1.0, 0.0)
    entrant = race(requests=4000, labels=300)
    same = np.arange(4000) % 20 > 0
    ended, _, _ = play(entrant, {"a": (same, np.where(same, 0.0, scores))})
    assert ended == Ended("proven", "a", 0.1)


def test_labels_and_requests_can_run_out():
    plan = {"a": (np.zeros(400, dtype=bool), np.zeros(400))}
    ended, needed, _ = play(race(), plan)
    assert ended.reason == "proven"
    assert play(race(labels=needed - 1), plan)[:2] == (Ended("labels"), needed - 1)
    assert play(race(requests=needed - 1), plan)[0] == Ended("requests")
    assert race(requests=0).next() == Ended("requests")


# -- events ------------------------------------------------------------------------------------------------------


def events_of(rng, requests=40):
    """Some events of three plans, in the order of the requests."""
    told = []
    for name in "abc":
        same, scores = world(rng, requests, 0.4, 0.1)
        for request in range(requests):
            told.append(("answered", name, request, bool(same[request])))
            if not same[request] and rng.random() < 0.9:
                told.append(("labelled", name, request, float(scores[request])))
            elif not same[request]:
                told.append(("skipped", name, request))
            if not same[request]:
                told.append(("judged", name, request, float(rng.choice([-1.0, 0.0, 1.0]))))
    return told


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    judge=st.booleans(),
    audit=st.sampled_from([0.0, 0.3]),
    cut=st.floats(0.0, 1.0),
    size=st.sampled_from([1, 3]),
)
def test_the_same_events_in_any_order_give_the_same_race(seed, judge, audit, cut, size):
    rng = np.random.default_rng(seed)
    told = [event for event in events_of(rng) if judge or event[0] != "judged"]
    told = told[: int(cut * len(told))]
    races = []
    for order in (range(len(told)), rng.permutation(len(told)), [*range(len(told)), *range(len(told))]):
        clusters = [request // size for request in range(40)]
        how = {"judge": judge, "audit": audit, "margins": (0.05, 0.1), "clusters": clusters}
        entrant = race(THREE, labels=60, requests=40, seed=seed, **how)
        for at in order:
            name, *rest = told[at]
            getattr(entrant, name)(*rest)
        races.append((entrant.standings(), entrant.next(), entrant.upcoming(7)))
    assert str(races[1]) == str(races[0]), "another order"  # as text: NaN is no NaN
    assert str(races[2]) == str(races[0]), "told twice"


def test_what_is_asked_ahead_starts_with_the_next_and_keeps_the_order():
    entrant = race([Candidate("a", 0.5, 0.02)], labels=2)
    ahead = entrant.upcoming(3)
    assert ahead == [Ask("a", 0), Ask("a", 1), Ask("a", 2)]
    assert entrant.next() == ahead[0]
    for request in (0, 1, 2, 3):
        entrant.answered("a", request, False)
    assert entrant.upcoming(9) == [Question("a", 0), Question("a", 1)], "not more questions than labels"
    entrant.labelled("a", 1, 1.0)
    assert entrant.next() == Question("a", 0)
    assert entrant.standings()[0].requests == 0, "request 1 waits for request 0"
    entrant.labelled("a", 0, 0.0)
    assert entrant.standings()[0].requests == 2


def test_a_label_that_nobody_had_to_give_again_is_not_counted():
    entrant = race([Candidate("a", 0.5, 0.02), Candidate("b", 0.5, 0.02)], labels=1)
    for name in "ab":
        entrant.answered(name, 0, False)
    entrant.labelled("a", 0, 1.0, counted=False)
    assert not isinstance(entrant.next(), Ended)
    entrant.labelled("b", 0, 1.0)
    assert entrant.next() == Ended("labels")


def test_labels_of_same_answers_do_not_count_without_an_audit():
    bare, more = race(), race()
    for entrant in (bare, more):
        more.labelled("a", 0, 1.0)
        entrant.answered("a", 0, True)
    assert more.standings()[0].log_wealth == bare.standings()[0].log_wealth


def test_a_skipped_question_counts_as_the_worst():
    skipped, lost = race(), race()
    for entrant in (skipped, lost):
        entrant.answered("a", 0, False)
    skipped.skipped("a", 0)
    lost.labelled("a", 0, -1.0)
    assert skipped.standings()[0].log_wealth == lost.standings()[0].log_wealth
    assert (skipped.standings()[0].skipped, lost.standings()[0].skipped) == (1, 0)


def test_a_graded_score_counts_between():
    wealth = []
    for score in (-1.0, -0.5, 0.0, 0.25, 1.0):
        entrant = race()
        entrant.answered("a", 0, False)
        entrant.labelled("a", 0, score)
        wealth.append(entrant.standings()[0].log_wealth[0.1])
        assert entrant.standings()[0].diff == score
    assert wealth == sorted(wealth)


def test_a_judge_is_asked_before_a_person_and_may_spare_the_question():
    entrant = race(judge=True, requests=200)
    questions = 0
    for request in range(60):
        entrant.answered("a", request, False)
        assert entrant.next() == Compare("a", request)
        entrant.judged("a", request, 1.0 - 2.0 * (request % 2))
        if isinstance(move := entrant.next(), Question):
            assert move.weight == (4.0 if entrant.standings()[0].judge_used else 1.0)
            questions += 1
            entrant.labelled("a", request, 1.0 - 2.0 * (request % 2))
    standing = entrant.standings()[0]
    assert standing.judge_used
    assert standing.judge_r2 > 0.8
    assert standing.labels == questions < 40
    assert standing.requests == 60


def test_later_attempts_need_more():
    thresholds = [race(attempt=attempt).standings()[0].threshold for attempt in (None, 1, 2, 3)]
    assert thresholds == sorted(thresholds)
    assert sum(math.exp(-race(attempt=k).standings()[0].threshold) for k in range(1, 2000)) <= 0.05


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"margins": (0.0,)}, "margins"),
        ({"max_loss": 1.0}, "margins"),
        ({"requests": -1}, "requests"),
        ({"labels": -1}, "labels"),
        ({"alpha": 0.0}, "alpha"),
        ({"attempt": 0}, "attempt"),
        ({"audit": 1.5}, "audit"),
        ({"clusters": [0]}, "clusters"),
        ({"weights": [1.0] * 400}, "max_weight"),
        ({"weights": [1.0], "max_weight": 2.0}, "weights"),
        ({"weights": [0.0] * 400, "max_weight": 2.0}, "weights"),
        ({"weights": [math.nan] * 400, "max_weight": 2.0}, "weights"),
        ({"weights": [2.0] * 400, "max_weight": 1.0}, "max_weight"),
        ({"candidates": [*ONE, *ONE]}, "same name"),
        ({"candidates": [Candidate("a", 0.5, 0.0)]}, "differing"),
        ({"candidates": [Candidate("a", math.nan, 0.1)]}, "saved"),
    ],
)
def test_an_impossible_setting_is_one_clear_line(settings, word):
    with pytest.raises(ConfigError, match=word) as caught:
        race(**settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("event", "word"),
    [
        (("answered", "nobody", 0, True), "nobody"),
        (("answered", "a", 400, True), "400"),
        (("answered", "a", 0.5, True), "0.5"),
        (("answered", "a", 0, 1), "same"),
        (("answered", "a", 1, False), "same"),
        (("labelled", "a", 0, 1.5), "score"),
        (("labelled", "a", 0, math.nan), "score"),
        (("labelled", "a", 2, 0.5), "score"),
        (("labelled", "a", 3, 0.5), "skipped"),
        (("skipped", "a", 2), "labelled"),
        (("judged", "a", 0, 1.0), "judge"),
        (("aim", 0.5), "max_loss"),
    ],
)
def test_an_impossible_event_is_one_clear_line(event, word):
    entrant = race()
    entrant.answered("a", 1, True)
    entrant.labelled("a", 2, 1.0)
    entrant.skipped("a", 3)
    name, *rest = event
    with pytest.raises(ConfigError, match=word) as caught:
        getattr(entrant, name)(*rest)
    assert "\n" not in str(caught.value)


def test_more_requests_change_no_draw_of_those_that_are_there():
    small, large = (Race([Candidate("a", 0.5, 0.1)], requests=count, audit=0.3, judge=True, seed=3) for count in (50, 400))
    assert small._audited == large._audited[:50]
    assert small._drawn == large._drawn[:50]
    assert 0 < sum(small._drawn) < 50
