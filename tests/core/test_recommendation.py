"""Whether to serve a plan: only what is proven against today's configuration is recommended, and "keep" says why."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.tries import routed, routed_trie

from vinelm.controller import Planner
from vinelm.objective import Objective
from vinelm.plans.recommendation import AgainstToday, ComparedPlan, recommended, thin_models


def plan(cost_usd, gain, reach, **fields):
    usual = {
        "policy": "paths", "cost_usd": cost_usd, "gain": gain, "gain_low": gain - reach, "gain_high": gain + reach,
        "saved_usd": 1.0 - cost_usd, "saved_low": 1.0 - cost_usd - 0.01, "saved_high": 1.0 - cost_usd + 0.01,
        "is_same": False, "is_identified": True,
    }  # fmt: skip
    return ComparedPlan(**{**usual, **fields})


def against(*plans):
    return AgainstToday(models={"s": "big"}, accuracy=0.9, cost_usd=1.0, requests=100, spent_usd=5.0, plans=plans)


def test_as_accurate_for_less_is_a_reason_to_switch():
    found = against(plan(0.5, 0.01, 0.015)).recommend(0.5)
    assert found.advice == "switch"
    assert found.sentence.startswith("Switch: it saves $0.5 of $1 per request at -0.5 to +2.5 points of accuracy")


def test_more_accurate_for_more_is_one_too():
    assert against(plan(2.0, 0.05, 0.04)).recommend(2.0).advice == "switch"


def test_a_dearer_plan_that_nobody_asked_for_has_to_gain_more_surely():
    lucky, sure = plan(3.0, 0.19, 0.13, saved_usd=-2.0), plan(3.0, 0.19, 0.1, saved_usd=-2.0)
    assert against(lucky).best() is None
    assert against(sure).best() == sure
    assert against(replace(lucky, saved_usd=0.0)).best() is not None  # for no more dollars
    assert against(lucky).recommend(3.0).advice == "switch"  # whoever asks for a plan at these dollars


def test_the_margin_is_what_a_cheaper_plan_may_lose():
    compared = against(plan(0.5, -0.001, 0.03))
    assert compared.recommend(0.5).advice == "keep"
    assert compared.recommend(0.5, margin=0.04).advice == "switch"


def test_a_dearer_plan_has_to_gain():
    assert against(plan(1.5, 0.02, 0.025)).recommend(1.5).advice == "keep"


def test_keep_says_what_it_would_take():
    found = against(plan(0.5, 0.01, 0.04)).recommend(0.5)
    assert found.advice == "keep"
    assert found.requests == 400  # the reach has to shrink from 4 points to 2: four times the requests
    assert found.usd == pytest.approx(15.0)
    assert "About 400 labelled requests would settle it, for about $15 more." in found.sentence


def test_a_loss_is_called_a_loss_and_needs_no_more_rows():
    found = against(plan(0.1, -0.2, 0.05)).recommend(0.1)
    assert (found.advice, found.requests) == ("keep", None)
    assert "the plan is worse: -25.0 to -15.0 points" in found.sentence


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"is_identified": False, "gain_low": 0.4}, "too few requests have run the plan"),
        ({"is_same": True}, "nothing was compared with it yet"),
    ],
)
def test_what_is_not_proven_is_kept(fields, words):
    found = against(plan(0.5, 0.0, 0.0, **fields)).recommend(0.5)
    assert found.advice == "keep"
    assert words in found.reason


def test_nothing_is_settled_by_a_comparison_with_nothing():
    same = plan(1.0, 0.0, 0.0, is_same=True)
    for found in (against(), against(same)):
        assert not found.is_settled()
        assert "the plan is what runs today" not in found.recommend(1.0).reason


def test_no_cheaper_plan_is_ruled_out_before_a_cheaper_model_was_compared():
    same, dearer = plan(1.0, 0.0, 0.0, is_same=True), plan(3.0, -0.2, 0.05, saved_usd=-2.0, models=("pro",))
    unseen = plan(0.2, -0.2, 0.05, models=("mini",), is_identified=False)
    cheaper = plan(0.2, -0.2, 0.05, models=("mini",))
    assert against(same, dearer).is_settled()  # nothing is cheaper than what runs today
    for plans in ((same, dearer), (same, dearer, unseen)):
        found = replace(against(*plans), cheaper=("mini",))
        assert not found.is_settled()
        assert found.recommend(1.0).reason == "no cheaper plan was compared yet: too few requests have run mini"
    assert replace(against(same, dearer, cheaper), cheaper=("mini",)).is_settled()


def test_keep_names_what_was_compared():
    same, cheaper = plan(1.0, 0.0, 0.0, is_same=True, models=("big",)), plan(0.2, -0.2, 0.05, models=("big", "mini"))
    found = replace(against(same, cheaper), cheaper=("mini",)).recommend(1.0)
    assert found.sentence == "Keep what you have: the plan is what runs today. Compared with it: plans of mini."
    assert against(same, cheaper).recommend(0.2).compared == ("mini",)


def test_a_file_of_an_earlier_version_is_still_read():
    annotated = routed_trie()
    held = against(plan(0.5, 0.0, 0.1)).to_dict()
    del held["cheaper"], held["plans"][0]["models"]
    annotated.meta["today"] = held
    found = AgainstToday.of(annotated)
    assert found.cheaper == found.plans[0].models == ()


def test_a_plan_far_from_all_that_were_compared_is_not_judged_by_them():
    compared = against(plan(0.4, 0.05, 0.01), plan(0.5, 0.05, 0.01))
    assert compared.recommend(0.2).advice == compared.recommend(0.7).advice == "keep"
    assert compared.recommend(0.45).advice == "switch"
    assert compared.recommend(0.45, policy="signals").advice == "keep"


def test_between_two_plans_the_line_is_taken():
    compared = against(plan(0.4, -0.10, 0.01), plan(0.6, 0.10, 0.01))
    low, high = compared.recommend(0.5).gain
    assert (low, high) == pytest.approx((-0.01, 0.01))


def test_too_little_to_compare_is_said():
    found = AgainstToday(models={"s": "big"}, why_not="3 requests have a scored answer").recommend(0.5)
    assert found.sentence == "Keep what you have: there is not enough to know: 3 requests have a scored answer."


def test_a_plan_that_may_lose_more_is_served_to_as_many_requests_as_lose_the_margin_together():
    found = against(plan(0.5, 0.01, 0.025)).recommend(0.5)
    assert (found.advice, found.share) == ("switch", 0.66)
    assert found.gain == pytest.approx((0.66 * -0.015, 0.66 * 0.035))
    assert found.saved_usd == pytest.approx((0.66 * 0.49, 0.66 * 0.51))
    assert found.sentence.startswith("Switch for 66 % of the requests: it saves $0.33 of $1 per request at -1.0 to +2.3 points")
    assert found.sentence.endswith("About 157 labelled requests would settle whether it may serve all, for about $2.9 more.")


@pytest.mark.parametrize(
    "other",
    [
        plan(0.5, 0.0, 0.0201),  # for less than half of the requests
        plan(0.5, -0.011, 0.001),  # known to lose more than the margin
        plan(0.5, 0.0, 0.015, saved_low=-0.1),  # nobody knows whether it saves
        plan(0.5, 0.0, 0.015, is_same=True),
        plan(0.5, 0.0, 0.015, is_identified=False),
    ],
)
def test_not_every_plan_is_served_to_a_share(other):
    assert other.proven_share() == 0.0
    assert against(other).best() is None
    assert against(other).recommend(0.5).advice == "keep"


def test_a_plan_proven_for_all_requests_comes_before_one_for_a_share_and_that_is_not_the_end():
    shared, whole = plan(0.2, 0.0, 0.015), plan(0.8, 0.0, 0.005)
    assert against(shared, whole).best() == whole
    assert against(shared).best() == shared
    assert against(whole).is_settled()
    assert not against(shared).is_settled()  # more rows would have it serve more


def test_a_plan_that_saves_next_to_nothing_is_no_reason_to_switch():
    found = against(plan(0.995, 0.0, 0.005, saved_low=0.004)).recommend(0.995)
    assert (found.advice, found.requests) == ("keep", None)
    assert "it saves hardly any dollars, at -0.5 to +0.5 points" in found.sentence


def test_the_best_plan_saves_most_and_else_gains_most():
    saving, more, gaining = plan(0.5, 0.02, 0.01), plan(0.3, 0.02, 0.01), plan(2.0, 0.2, 0.1)
    assert against(saving, more, gaining).best() is more
    assert against(plan(0.1, -0.2, 0.05), gaining).best() is gaining
    assert against(plan(0.1, -0.2, 0.05)).best() is None
    assert against(replace(more, is_identified=False)).best() is None


@given(st.floats(0.0, 3.0), st.floats(-0.5, 0.5), st.floats(0.0, 0.3), st.floats(0.0, 0.1))
def test_never_a_switch_to_what_may_be_worse_than_the_margin(cost, gain, reach, margin):
    found = against(plan(cost, gain, reach)).recommend(cost, margin=margin)
    if found.advice == "switch":
        assert found.share * (gain - reach) >= -margin
        assert found.share >= 0.5
        assert cost < 1.0 or gain - reach > 0.0


def test_it_comes_back_from_a_trie_as_it_was():
    compared, annotated = against(plan(0.5, 0.01, 0.015)), routed_trie()
    annotated = replace(annotated, meta={**annotated.meta, "today": compared.to_dict()})
    assert AgainstToday.of(annotated) == compared
    assert AgainstToday.of(replace(annotated, meta={})) is None


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


def test_where_all_known_plans_are_worse_the_question_is_that_of_the_unknown_ones():
    worse, unknown = plan(0.3, -0.2, 0.05), plan(0.5, -0.01, 0.4, is_identified=False)
    found = against(worse, unknown)
    assert found.closest() == unknown
    assert "too few requests have run the plan" in found.advice().reason
    assert against(worse).closest() == worse


def test_a_plan_for_the_objective_that_was_compared_is_judged_by_what_was_compared():
    """By all rows the best plan within these dollars may spend less, where other plans were compared that lose more."""
    annotated = routed()
    compared = against(plan(0.3, -0.02, 0.01), plan(0.5, 0.01, 0.015))
    found = replace(annotated, meta={**annotated.meta, "today": compared.to_dict()})
    objective = compared.objective()
    assert f"{objective.max_cost_usd:.3g}" == str(objective.max_cost_usd)  # as it is printed
    assert objective.max_cost_usd >= 0.5
    for own in (objective, replace(objective, on_infeasible="raise")):
        assert recommended(found, own, lambda: 0.35).advice == "switch"
    assert recommended(found, replace(objective, max_cost_usd=0.4), lambda: 0.35).advice == "keep"
    assert recommended(annotated, objective, lambda: 0.35) is None
