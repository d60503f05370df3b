"""The rule of the verdict: a ladder from the dearest plan down, four words, and figures that come back from a file."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.tries import routed

from vinelm.controller import Planner
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.plans.recommendation import recommended, served_objective, thin_models
from vinelm.trie.verdict import (
    ByToday,
    ComparedPlan,
    Verdict,
    columns,
    early_reach,
    nothing_differs,
    table_rows,
    what_can_be_proven,
    why_hopeless,
)


def plan(cost_usd, gain, reach, *, wider=1.0, **fields):
    usual = {
        "policy": "paths", "cost_usd": cost_usd, "gain": gain, "gain_low": gain - reach, "gain_high": gain + reach,
        "best_low": gain - wider * reach, "best_high": gain + wider * reach, "words": f"plan of {cost_usd:g}",
        "saved_usd": 1.0 - cost_usd, "saved_low": 1.0 - cost_usd - 0.01, "saved_high": 1.0 - cost_usd + 0.01,
        "is_same": False, "is_identified": True, "models": ("mini",),
    }  # fmt: skip
    return ComparedPlan(**{**usual, **fields})


def against(*plans, **fields):
    usual = {"models": {"s": "big"}, "accuracy": 0.9, "cost_usd": 1.0, "requests": 100, "rows": 300, "spent_usd": 5.0}
    return Verdict(plans=plans, **{**usual, **fields})


# -- the ladder --------------------------------------------------------------------------------------------------------


def test_the_last_plan_that_passed_from_the_dearest_down_is_switched_to():
    found = against(plan(0.2, 0.0, 0.05), plan(0.4, 0.0, 0.02), plan(0.8, 0.0, 0.02))
    assert (found.advice, found.plan.cost_usd, found.share) == ("switch", 0.4, 1.0)


def test_a_dear_plan_with_few_rows_stops_nothing_and_proves_nothing():
    many = plan(0.2, 0.0, 0.02, followed=100.0)
    found = against(many, plan(0.8, 0.0, 0.2, followed=20.0))
    assert (found.advice, found.plan.cost_usd) == ("switch", 0.2)
    asked = against(plan(0.2, 0.0, 0.025, followed=100.0), plan(0.8, 0.0, 0.2, followed=60.0))
    assert (asked.plan.cost_usd, asked.share) == (0.2, 0.84)  # with many rows it ends the ladder
    assert against(many, plan(0.1, 0.0, 0.02, followed=20.0)).plan.cost_usd == 0.2  # three lucky answers are no plan


def test_the_first_failure_stops_it_and_what_comes_below_is_taken_by_wider_intervals():
    found = against(plan(0.2, 0.1, 0.09, wider=2.0), plan(0.5, 0.0, 0.2), plan(0.8, 0.0, 0.02))
    assert found.plan.cost_usd == 0.8  # the cheap one would pass, and is never asked
    assert against(plan(0.2, 0.0, 0.025), plan(0.8, 0.0, 0.2)).share == 0.84  # .03 / (.025 * 2.326 / 1.645)
    assert against(plan(0.2, 0.0, 0.025, wider=1.2), plan(0.8, 0.0, 0.2)).share == 0.70
    assert against(plan(0.2, 0.0, 0.02), plan(0.8, 0.0, 0.2)).share == 1.0
    assert against(plan(0.2, 0.0, 0.05), plan(0.8, 0.0, 0.2)).advice == "undecided"


@pytest.mark.parametrize(
    "fields", [{"cost_usd": 0.97}, {"is_same": True}, {"is_identified": False}, {"is_rung": False}, {"saved_low": -0.1}]
)
def test_what_is_no_rung_or_may_save_nothing_is_no_switch(fields):
    found = against(replace(plan(0.5, 0.0, 0.01), **fields))
    assert found.advice != "switch"


def test_a_loss_is_allowed_by_whoever_asks():
    compared = against(plan(0.5, 0.0, 0.04))
    assert [(compared.at(loss).advice, compared.at(loss).share) for loss in (0.01, 0.03, 0.05)] == [
        ("undecided", 0.0),
        ("switch", 0.75),  # of the requests
        ("switch", 1.0),
    ]
    assert compared.at(0.05).plan == compared.at(0.01).plan  # from the same intervals
    with pytest.raises(ConfigError, match="max_loss is 3"):
        compared.at(3)


def test_what_is_shown_is_the_interval_of_the_best_of_all():
    found = against(plan(0.5, 0.0, 0.02, wider=1.5))
    assert found.advice == "switch"
    assert found.gain == pytest.approx((0.0, -0.03, 0.03))
    assert found.loss == pytest.approx(0.03)
    assert "(+0.0 points, -3.0 to +3.0)" in found.sentence


def test_who_saves_nothing_has_to_gain_and_who_costs_more_by_more_than_may_be_lost():
    assert against(plan(1.0, 0.03, 0.02)).advice == "switch"
    assert against(plan(1.0, 0.03, 0.02, wider=2.0)).advice == "undecided"
    assert against(plan(2.0, 0.05, 0.04)).advice == "undecided"
    assert against(plan(2.0, 0.08, 0.04)).advice == "switch"
    assert against(plan(2.0, 0.08, 0.04), plan(1.0, 0.03, 0.02)).plan.cost_usd == 1.0  # for no more dollars


def test_a_plan_that_may_lose_more_serves_as_many_requests_as_lose_that_together():
    found = against(plan(0.5, 0.01, 0.054, wider=1.2))
    assert (found.advice, found.share) == ("switch", 0.68)
    assert found.served.gain == pytest.approx(0.68 * 0.01)
    assert found.served.saved_usd == pytest.approx(0.34)
    assert found.served.gain_low == pytest.approx(0.68 * (0.01 - 0.054))
    assert found.served.gain_low >= -0.03
    assert found.sentence.startswith("SWITCH for 68 % of the requests: plan of 0.5.")
    assert not found.ends_buying  # more rows would have it serve more
    assert against(plan(0.93, 0.01, 0.054)).advice == "undecided"  # 68 % of 7 %: less than 5 % is saved
    assert against(plan(0.5, -0.031, 0.001)).advice == "keep"  # known to lose more
    more = against(plan(0.2, 0.0, 0.04), plan(0.8, 0.0, 0.04))
    assert (more.plan.cost_usd, more.share) == (0.2, 0.53)  # saves more than 75 % to the first that failed


def test_buying_ends_once_no_later_look_would_see_more_of_the_plan():
    looked = plan(0.5, 0.0, 0.025)
    assert against(looked).advice == "switch"
    assert not against(looked).ends_buying  # by luck one of several looks finds it
    whole = plan(0.5, 0.0, 0.025, answers=100, lost=0)
    assert against(whole).ends_buying
    shared = plan(0.5, 0.01, 0.054, wider=1.2, answers=100, lost=1)  # for 68 % of the requests: all of them have run it
    assert (against(shared).share, against(shared).ends_buying) == (0.68, True)
    assert not against(shared, plan(0.4, 0.0, 0.2)).ends_buying  # what would save more than the share may still be proven
    blocked = against(plan(0.5, 0.0, 0.025, answers=100, lost=0), plan(0.8, 0.0, 0.05))  # it fails for want of results
    assert (blocked.advice, blocked.share < 1.0, blocked.ends_buying) == ("switch", True, False)


def test_buying_goes_on_while_something_that_saves_clearly_more_may_be_proven():
    proven = plan(0.7, 0.0, 0.01)
    assert against(proven).ends_buying
    for cost_usd, gain, ends in ((0.2, -0.01, False), (0.2, -0.1, True), (0.66, 0.0, True)):
        assert against(proven, plan(cost_usd, gain, 0.2)).ends_buying == ends
        alone = plan(cost_usd, gain, 1.0, is_identified=False, is_rung=False, code=(("s", "mini"),))
        assert against(proven, alone).ends_buying == ends
    assert against(proven, plan(0.2, -0.01, 0.2, answers=100, lost=3)).ends_buying  # all that there is was bought


def test_a_switch_shows_no_larger_loss_than_its_rule_has_excluded():
    found = against(plan(0.5, 0.0, 0.028, wider=1.4), plan(0.8, 0.0, 0.01))
    assert (found.advice, found.plan.cost_usd) == ("switch", 0.5)
    assert found.gain[1] == -0.03
    assert "at most 3.0 points could be lost" in found.sentence.lower()
    assert against(plan(0.5, 0.0, 0.032, wider=1.4)).at(0.02).gain[1] == -0.02  # for a share of the requests
    assert against(plan(0.5, 0.0, 0.07, wider=1.4)).gain[1] == pytest.approx(-0.098)  # open: nothing is excluded


# -- four words --------------------------------------------------------------------------------------------------------


def test_keep_says_what_was_compared_and_what_is_not_taken():
    found = against(plan(0.2, -0.2, 0.05))
    assert (found.advice, found.ends_buying, found.settling) == ("keep", True, None)
    assert found.sentence == (
        "KEEP what runs today: nothing cheaper or better is left among plans of mini. The best of these (plan of 0.2) has"
        " $200.00 instead of $1,000.00 per 1,000 requests (-80 %) and -20.0 points, -25.0 to -15.0 (95 %, as of these"
        " requests)."
    )


def test_nothing_is_kept_because_nothing_was_compared():
    same, dearer = plan(1.0, 0.0, 0.0, is_same=True), plan(3.0, -0.2, 0.05, models=("pro",))
    unseen = plan(0.2, -0.2, 0.05, is_identified=False)
    for plans in ((), (same,), (unseen,), (same, unseen)):
        found = against(*plans)
        assert (found.advice, found.ends_buying) == ("not enough data", False)
        assert found.sentence.startswith("NOT ENOUGH DATA: no other plan than what runs today was compared")
    assert against(same, dearer).advice == "keep"  # nothing is cheaper than what runs today
    for plans in ((same, dearer), (same, dearer, unseen)):
        found = against(*plans, cheaper=("mini",))
        assert found.advice == "not enough data"
        assert "too few requests have run mini to the end" in found.sentence
    assert against(same, dearer, plan(0.2, -0.2, 0.05), cheaper=("mini",)).advice == "keep"
    unproven = [
        plan(0.3, gain, 1.0, is_identified=False, is_rung=False, code=(("s", name),))
        for name, gain in (("mid", -0.01), ("tiny", -0.4))
    ]
    found = against(same, dearer, plan(0.2, -0.2, 0.05), *unproven, cheaper=("mini", "mid", "tiny"))
    assert found.advice == "not enough data"
    assert found.sentence.startswith(
        "NOT ENOUGH DATA: mid may do as well for less, but too few requests have run it to the end"
    )
    assert found.at(0.005).advice == "keep"  # none is predicted to lose so little
    why = against(why_not="3 requests have a scored answer")
    assert (why.advice, why.sentence) == ("not enough data", "NOT ENOUGH DATA: 3 requests have a scored answer.")


def test_undecided_names_the_nearest_plan_and_what_would_settle_it():
    found = against(plan(0.5, 0.01, 0.08))
    assert found.advice == "undecided"
    assert found.settling.requests == 400  # the reach has to shrink from 8 points to 4: four times the requests
    assert found.settling.labels == 300
    assert found.settling.usd == pytest.approx(300 * 1.5)  # each runs the plan and what runs today
    few = against(plan(0.5, 0.0, 0.09, followed=30.0, answers=30, lost=0))
    assert (few.settling.requests, few.settling.labels, few.settling.runs) == (90, 0, 60)  # of those that have a label
    assert few.settling.usd == pytest.approx(60 * 1.5)
    assert "0 of 30 answers lost; at most 9.0 points could be lost" in few.sentence
    assert few.sentence.endswith("Running it on about 60 more of these requests would settle it, about $90.00 of runs.")
    assert found.sentence == (
        "UNDECIDED: plan of 0.5 is the nearest plan. It costs $500.00 instead of $1,000.00 per 1,000 requests (-50 %), with"
        " 91.0 % right instead of 90.0 % (+1.0 points, -7.0 to +9.0). At most 7.0 points could be lost (95 %, as of these"
        " requests), and 3 are allowed (--max-loss). About 400 labelled requests would settle it: 300 more labels, about"
        " $450.00 of runs."
    )
    worse = against(plan(0.5, -0.04, 0.05))  # expected to lose more than is allowed
    assert (worse.advice, worse.settling) == ("undecided", None)
    assert "would hardly settle it" in worse.sentence


def test_a_fixed_plan_is_an_answer_and_the_best_kind():
    found = against(
        plan(0.5, 0.0, 0.01, policy="fixed", code=(("write", "mini"), ("retry", "big")), words="write mini, retry big")
    )
    assert found.is_fixed
    assert found.sentence.startswith("SWITCH, A FIXED PLAN IS ENOUGH: write mini, retry big. It costs $500.00 instead of")
    assert found.sentence.endswith("You need no runtime: `vinelm plan TRIE --as-code` prints the lines to write.")
    assert not replace(found, plans=(replace(found.plan, code=()),)).is_fixed


def test_the_sentence_says_who_counts_and_against_whom():
    found = against(plan(0.5, 0.04, 0.01))
    assert "No accuracy is lost (95 %, as of these requests)." in found.sentence
    assert "(95 %, as the judge counts, as of these requests)" in replace(found, is_judged=True).sentence
    other = replace(found, is_today=False, opponent="big")
    assert ", against big, the strongest single model." in other.sentence
    timed = replace(found, latency_s=4.0, plans=(replace(found.plan, latency_s=2.5),))
    assert "2.5 s instead of 4 s" in timed.sentence


def test_the_table_has_the_opponent_first_and_marks_the_plan():
    found = against(plan(0.5, 0.0, 0.01), plan(0.1, -0.3, 0.05))
    rows = list(table_rows(found))
    assert rows[0] == ("today", "90.0 %", "", "$1,000.00", "")
    assert [row[0] for row in rows[1:]] == ["plan of 0.1", "plan of 0.5 *"]


# -- the rule of three -------------------------------------------------------------------------------------------------


def test_without_a_lost_answer_about_three_of_n_could_be():
    assert nothing_differs(60) == pytest.approx(0.0487, abs=1e-4)
    for n in (30, 100, 1000):
        assert nothing_differs(n) == pytest.approx(3.0 / n, rel=0.05)
        assert (1.0 - nothing_differs(n)) ** n == pytest.approx(0.05)
    found = against(plan(0.5, 0.0, nothing_differs(60), answers=60, lost=0), requests=60, max_loss=0.05)
    assert "0 of 60 answers lost; at most 4.9 points could be lost (95 %, as of these requests)" in found.sentence


def test_before_a_row_is_bought_it_is_said_what_the_requests_can_prove():
    said = what_can_be_proven(60, 0.03)
    assert said.startswith(
        "With 60 labelled requests a loss below 4.9 points cannot be excluded, whatever is bought; for a plan that changes many"
        " answers about 14."
    )
    assert said.endswith("3 points take 100 to 1,400 labelled requests.")
    assert "nothing can be proven" in what_can_be_proven(0, 0.03)


def test_where_no_answer_differs_twice_the_requests_halve_what_could_be_lost():
    same = plan(0.5, 0.0, nothing_differs(40), answers=40, lost=0)
    settling = against(same, requests=40, max_loss=0.03).settling
    assert settling.requests == pytest.approx(40 * nothing_differs(40) / 0.03, abs=1)
    assert nothing_differs(settling.requests) == pytest.approx(0.03, rel=0.05)


def test_it_is_hopeless_only_where_even_no_lost_answer_would_do():
    assert why_hopeless(30, 0.0, 0.03).startswith("what runs today is right on all 30 labelled requests")
    assert why_hopeless(30, 0.0, 0.03).endswith("3 are allowed: about 100 would do")
    assert why_hopeless(30, 1.0, 0.03) == ""  # a plan may be right there
    assert why_hopeless(30, 0.0, 0.05) == ""
    for n in range(20, 200):  # what is hopeless is no switch, even if every answer is the same: not for half of the requests
        same = replace(plan(0.5, 0.0, nothing_differs(n)), answers=n, lost=0)
        for max_loss in (0.01, 0.03, 0.05):
            is_hopeless = bool(why_hopeless(n, 0.0, max_loss))
            assert is_hopeless == (against(same, requests=n, max_loss=max_loss).advice != "switch")


def test_a_look_of_several_ends_the_buying_only_at_three_standard_errors():
    """By the usual reach five looks at twice the rows each are wrong in 16 % of the cases; so the last alone has it."""
    assert not against(plan(0.5, 0.0, 0.02)).ends_buying  # a switch by its interval, 1.6 standard errors
    assert against(plan(0.5, 0.0, 0.016)).ends_buying
    assert not against(plan(0.2, 0.0, 0.02), plan(0.8, 0.0, 0.01)).ends_buying  # the dearer plan alone would be sure
    assert against(plan(0.5, -0.2, 0.02)).ends_buying  # to keep
    assert not against(plan(0.5, 0.0, 0.2)).ends_buying
    drawn = np.random.default_rng(0).standard_normal((2000, 5)) * np.sqrt([1, 1, 2, 4, 8])
    looks = np.cumsum(drawn, axis=1) / np.sqrt([1, 2, 4, 8, 16]) - 3.0  # at the edge: standard errors of one point each
    wrong, at_any = 0, 0
    for found in ([against(plan(0.5, one / 100, 0.016449)) for one in row] for row in looks):
        passed = [one.advice == "switch" and one.share == 1.0 for one in found]
        wrong += passed[-1] or any(one and look.ends_buying for one, look in zip(passed, found, strict=True))
        at_any += any(passed)
    assert wrong <= 0.065 * len(looks)
    assert at_any > 0.13 * len(looks)


# -- other objectives, and a file --------------------------------------------------------------------------------------


def test_a_plan_of_another_objective_is_judged_by_those_beside_it():
    compared = against(plan(0.4, -0.10, 0.01), plan(0.6, 0.10, 0.01))
    assert compared.on(0.2, "paths") is None
    assert compared.on(0.75, "paths") is None
    assert compared.on(0.5, "signals") is None
    assert compared.on(0.5, "paths").gain == pytest.approx((0.0, -0.01, 0.01))  # on the line between the two
    assert [compared.on(usd, "paths").advice for usd in (0.4, 0.5, 0.6)] == ["keep", "switch", "switch"]


def test_the_objective_that_was_compared_has_the_verdict_of_the_file():
    """By all rows the best plan within these dollars may spend less, where other plans were compared that lose more."""
    annotated = routed()
    compared = against(plan(0.3, -0.08, 0.01), plan(0.5, 0.01, 0.015))
    found = replace(annotated, verdict=compared)
    objective = served_objective(compared)
    assert f"{objective.max_cost_usd:.3g}" == str(objective.max_cost_usd)  # as it is printed
    assert objective.max_cost_usd >= 0.5
    for own in (objective, replace(objective, on_infeasible="raise")):
        assert recommended(found, own, lambda: 0.35).advice == "switch"
    assert recommended(found, replace(objective, max_cost_usd=0.4), lambda: 0.35).advice == "keep"
    assert recommended(found, replace(objective, max_cost_usd=9.0), lambda: 9.0).advice == "not enough data"
    assert recommended(annotated, objective, lambda: 0.35) is None
    assert recommended(found, objective, lambda: 0.35, max_loss=0.0).max_loss == 0.0


@given(st.floats(0.0, 3.0), st.floats(-0.5, 0.5), st.floats(0.0, 0.3), st.floats(0.0, 0.1))
def test_never_a_switch_to_what_may_lose_more_than_is_allowed(cost, gain, reach, max_loss):
    found = against(plan(cost, gain, reach), max_loss=max_loss)
    if found.advice == "switch":
        assert found.share * (gain - reach) >= -max_loss
        assert found.share >= 0.5
        assert cost <= 0.95 or gain - reach > (max_loss if cost > 1.0 else 0.0)


def test_it_comes_back_from_its_file_as_it_was():
    found = against(plan(0.5, 0.01, 0.015, code=(("s", "mini"),)), plan(0.8, 0.0, 0.01), is_judged=True)
    assert Verdict.from_dict(json.loads(json.dumps(found.held()))) == found
    assert json.loads(json.dumps(found.to_dict()))["advice"] == "switch"


# -- what a plan leans on ----------------------------------------------------------------------------------------------


def test_a_plan_with_several_ends_says_which_of_its_models_has_few_rows():
    annotated = routed()  # billing is answered by m0, technical requests by m1
    rows = np.where(annotated.trie.model == 1, 1, 200)
    rows[0] = 0
    annotated = replace(annotated, count=rows)
    dear = Planner(annotated).plan(Objective(maximize="accuracy"))
    cheap = Planner(annotated).plan(Objective(maximize="accuracy", max_cost_usd=0.4))
    assert set(thin_models(annotated, dear.reached)) == {"m1"}
    assert "m1" not in cheap.words
    assert thin_models(annotated, cheap.reached) == {}
    assert thin_models(replace(annotated, count=200 + 0 * rows), dear.reached) == {}


# -- requests without labels -------------------------------------------------------------------------------------------


def by_today(**fields):
    return ByToday(**{"requests": 100, "plan": "plan of 0.4", "differing": 6, **fields})


PAIRS = tuple((f"r{number}", "digest") for number in range(6))


def test_what_only_lacks_the_word_of_persons_is_undecided_and_asks():
    found = against(plan(0.4, -0.06, 0.04), by_today=by_today(questions=PAIRS, is_put=True))
    assert (found.advice, found.waiting, found.plan.words) == ("undecided", 6, "plan of 0.4")
    assert found.ends_buying  # persons come next
    assert "6 questions wait, which may prove it: an answer that differs from today's counts as lost" in found.sentence
    assert "as today's answers count, as of these requests" in found.sentence
    assert " right" not in found.sentence
    assert found.to_dict()["waiting"] == 6


def test_what_labels_could_not_prove_is_not_asked_and_says_how_many_requests_would_do():
    few = against(plan(0.4, -0.06, 0.04), by_today=by_today(needed=700))
    assert (few.advice, few.waiting, few.ends_buying) == ("undecided", 0, False)
    assert "none is asked for: about 700 requests would do" in few.sentence
    assert against(plan(0.4, -0.2, 0.04), by_today=by_today(needed=70_000)).advice == "keep"


def test_a_switch_by_todays_answers_says_what_persons_may_add():
    plans = plan(0.7, 0.0, 0.02), plan(0.4, -0.06, 0.04)
    found = against(*plans, by_today=by_today(questions=PAIRS, is_put=True, requests=60, asked=3))
    assert (found.advice, found.plan.words) == ("switch", "plan of 0.7")
    assert "as today's answers count on 60 of 100 requests" in found.sentence
    assert "3 questions answered so far. 6 questions wait, which may prove plan of 0.4, which saves more" in found.sentence
    assert columns(found)[1] == "as good"
    assert columns(against(*plans))[1] == "right"


def test_what_the_same_answers_may_hide_is_said():
    hiding = plan(0.4, 0.0, 0.02).lowered(0.042)
    assert hiding.gain_low == pytest.approx(-0.062)
    assert "up to 4.2 points could be lost there" in against(hiding, by_today=by_today()).sentence


def test_it_comes_back_from_its_file_with_what_persons_are_asked():
    found = against(plan(0.4, -0.06, 0.04), by_today=by_today(questions=PAIRS, asked=2, needed=5, digest="a"))
    assert Verdict.from_dict(json.loads(json.dumps(found.held()))) == found


def test_at_another_loss_nothing_is_said_of_questions_that_were_found_for_this_one():
    found = against(plan(0.4, -0.06, 0.04), by_today=by_today(questions=PAIRS, is_put=True))
    other = found.at(0.02)
    assert (other.waiting, other.advice) == (0, "undecided")
    assert "`vinelm label`" not in other.sentence
    assert "an estimate at this --max-loss says" in other.sentence
    assert found.at(found.max_loss) == found


def test_persons_are_sent_to_their_questions_only_where_these_are_put():
    found = against(plan(0.4, -0.06, 0.04), by_today=by_today(questions=PAIRS))
    assert "6 questions would be asked, which may prove it" in found.sentence
    assert "`vinelm label`" not in found.sentence


def test_five_looks_are_wrong_hardly_more_often_than_one():
    """At 5 %, each look at twice the rows of the one before, where a plan loses exactly what is allowed."""
    shares = 2.0 ** np.arange(-4, 1)
    steps = np.sqrt(np.diff(shares, prepend=0.0))
    scores = (np.random.default_rng(0).normal(size=(400_000, 5)) * steps).cumsum(axis=1) / np.sqrt(shares)
    reach = np.array([early_reach(share) if share < 1.0 else 1.0 for share in shares])
    assert (scores > 1.6449).any(axis=1).mean() == pytest.approx(0.156, abs=0.003)
    assert (scores > 1.6449 * reach).any(axis=1).mean() == pytest.approx(0.054, abs=0.002)
