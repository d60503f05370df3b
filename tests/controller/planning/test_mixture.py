"""Mixed plans: the best that shares of all deterministic plans reach, and the same draw everywhere."""

import subprocess
import sys

import numpy as np
import pytest
from kit.oracles.mixtures_of_plans import KINDS, check_mixture, random_objective, small_tries
from kit.tables import random_table

from vinelm.controller import Planner, Session
from vinelm.controller.planning.mixture import Hull
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.plans.assignment import Assigned, Assignment, place_of

TABLE = random_table(5, n_requests=80, n_models=4, depth=3)
TRIE = TABLE.annotate()


def within(budget, **more):
    return Objective(maximize="accuracy", max_cost_usd=budget, **more)


def corners(planner):
    """Dollars and accuracy of the hull's corners, found by asking for very many budgets without mixing."""
    low, high = (planner.plan(one).path_cost_usd for one in (Objective(minimize="cost"), Objective(maximize="accuracy")))
    found = [planner.plan(within(float(budget), mix=False)) for budget in np.linspace(low, high, 400)]
    return sorted({(one.path_cost_usd, one.accuracy) for one in found})


def between(planner):
    """An objective whose bound lies between two plans, and their mixture."""
    for budget in np.linspace(*(corners(planner)[at][0] for at in (0, -1)), 50)[1:-1]:
        objective = within(float(budget))
        mixture = planner.mixture(objective)
        if mixture is not None and 0.2 < mixture.share < 0.8:
            return objective, mixture
    raise AssertionError("no bound lies between two plans")


@pytest.mark.parametrize("kind", KINDS)
def test_no_shares_of_deterministic_plans_are_better(kind):
    """The linear program over all deterministic plans; tests/attacks/check_planner.py does it at length."""
    mixed = 0
    for rng, planner, plans in small_tries(kind, 25):
        for objective in (random_objective(rng, plans) for _ in range(4)):
            assert check_mixture(objective, planner, plans) is None
            mixed += planner.mixture(objective) is not None
    assert mixed > 5


@pytest.mark.parametrize("kind", KINDS)
def test_the_value_is_concave_and_increasing_in_the_bound_and_spends_it(kind):
    for _, planner, plans in small_tries(kind, 6, seed=1):
        low, high = planner.plan(Objective(minimize="cost")).path_cost_usd, max(usd for _, usd in plans)
        budgets = np.linspace(low, high * 1.1, 23)
        found = [planner.mixed(within(float(budget))) for budget in budgets]
        value = np.array([one.accuracy for one in found])
        assert (np.diff(value) >= -1e-12).all()
        assert (np.diff(value, 2) <= 1e-9).all()
        dearest = planner.plan(Objective(maximize="accuracy")).path_cost_usd
        spent = [one.path_cost_usd for one in found]
        assert spent == pytest.approx(np.minimum(budgets, dearest), abs=1e-9)


def test_at_a_corner_one_plan_serves_all():
    planner = Planner(TRIE)
    objective, mixture = between(planner)
    for bound in (mixture.low_bound, mixture.high_bound):
        assert planner.mixture(within(bound)) is None
        assert planner.mixed(within(bound)).path_cost_usd == bound
    assert planner.mixture(Objective(maximize="accuracy", max_cost_usd=1e9)) is None
    assert planner.mixture(within(objective.max_cost_usd, mix=False)) is None


def test_a_floor_is_met_exactly_too():
    planner = Planner(TRIE)
    objective, mixture = between(planner)
    floor = planner.mixed(objective).accuracy
    found = planner.mixed(Objective(minimize="cost", min_accuracy=floor))
    assert found.accuracy == pytest.approx(floor)
    assert found.path_cost_usd == pytest.approx(objective.max_cost_usd)
    assert [plan.path_cost_usd for _, plan in sorted(found.parts, key=lambda part: part[1].path_cost_usd)] == [
        mixture.low_bound, mixture.high_bound
    ]  # fmt: skip


def test_a_second_bound_on_a_mean_is_met_by_the_mixture():
    planner = Planner(TRIE)
    objective, _ = between(planner)
    reached = planner.mixed(objective).accuracy
    both = within(objective.max_cost_usd, min_accuracy=reached - 1e-9)
    assert planner.mixed(both).accuracy == pytest.approx(reached)
    assert min(plan.accuracy for _, plan in planner.mixed(both).parts) < both.min_accuracy
    too_much = within(objective.max_cost_usd, min_accuracy=reached + 1e-6)
    assert planner.mixed(too_much).relaxed == ("min_accuracy",)


def test_a_deadline_holds_for_both_plans():
    planner = Planner(TRIE)
    latest = float(np.quantile(TRIE.path_latency_s[1:], 0.6))
    seen = 0
    for budget in np.linspace(*(corners(planner)[at][0] for at in (0, -1)), 30):
        found = planner.mixed(within(float(budget), max_latency_s=latest))
        assert all(plan.path_latency_s <= latest for _, plan in found.parts)
        seen += len(found.parts) > 1
    assert seen


@pytest.mark.parametrize(
    "objective",
    [
        Objective(maximize="accuracy"),
        Objective(maximize="accuracy", max_latency_s=5.0),
        Objective(maximize="accuracy", max_cost_usd=1.0, cost_budget="per_request"),
        Objective(maximize="accuracy", max_cost_usd=1.0, max_latency_s=5.0, risk="dp"),
        Objective(minimize="latency", max_cost_usd=1.0),
        Objective(minimize="cost", max_latency_s=5.0),
    ],
    ids=str,
)
def test_caps_of_each_request_are_no_means(objective):
    assert not objective.mixes
    assert Planner(TRIE).mixture(objective) is None
    with pytest.raises(ConfigError, match="no effect"):
        Objective(**objective.to_dict(), mix=False)
    with pytest.raises(ConfigError, match="mean"):
        objective.drawn(0.5)


def test_figures_lie_between_those_of_the_two_plans():
    planner = Planner(TRIE)
    objective, mixture = between(planner)
    found, share = planner.mixed(objective), mixture.share
    low, high = (planner.plan(one) for one in (mixture.low, mixture.high))
    for name in ("accuracy", "path_cost_usd", "expected_latency_s"):
        mean = (1 - share) * getattr(low, name) + share * getattr(high, name)
        assert getattr(found, name) == pytest.approx(mean), name
    assert found.slack["max_cost_usd"] == pytest.approx(0.0, abs=1e-12)
    assert found.promise.accuracy == pytest.approx((1 - share) * low.promise.accuracy + share * high.promise.accuracy)
    assert found.reached == pytest.approx((1 - share) * low.reached + share * high.reached)
    assert sum(part for part, _ in found.parts) == pytest.approx(1.0)
    text = found.explain()
    assert low.words in text
    assert high.words in text
    assert f"{share:.0%}" in text
    assert {plan["path_cost_usd"] for plan in found.to_dict()["mixed_plans"]} == {low.path_cost_usd, high.path_cost_usd}


# -- the draw ------------------------------------------------------------------------------------------------------


def test_the_share_is_drawn_alike_in_every_process():
    keys = [f"request {i}" for i in range(4000)]
    drawn = np.array([place_of(f"mixture:{key}") for key in keys])
    for share in (0.1, 0.5, 0.9):
        assert np.mean(drawn < share) == pytest.approx(share, abs=0.03)
    assert [Assignment.of_share(0.5, 1, 0).of(key) for key in keys] == (drawn < 0.5).astype(int).tolist()
    code = "from vinelm.plans.assignment import place_of; print(place_of('mixture:request 7'))"
    assert float(subprocess.check_output([sys.executable, "-c", code], text=True)) == drawn[7]


def test_a_session_follows_the_plan_that_was_drawn_and_says_so():
    planner = Planner(TRIE)
    objective, mixture = between(planner)
    for bound, wanted in ((mixture.low_bound, mixture.low), (mixture.high_bound, mixture.high)):
        session, prefix = Session(planner, objective, assigned=Assigned(bound=bound)), ()
        path = planner.plan(wanted).path
        for model in path:
            stage = next(iter(TRIE.trie.arms(TRIE.trie.node(prefix))))
            assert session.next_model(stage, prefix) == model
            prefix = (*prefix, model)
        assert str(wanted) in session.steps[0].note
        assert session.steps[0].note.startswith("of two plans")


def test_where_the_drawn_plan_fits_no_more_the_whole_bound_counts():
    """After a fallback to a dear model nothing is left of the cheaper plan's bound; least cost would be the wrong answer."""
    planner = Planner(TRIE)
    objective, mixture = between(planner)
    low = planner.plan(mixture.low).path
    dearest = max(
        (model for model in TRIE.trie.models if model != low[0]), key=lambda model: TRIE.cost_usd[TRIE.trie.node((model,))]
    )
    node = TRIE.trie.node((dearest,))
    session = Session(planner, objective, assigned=Assigned(bound=mixture.low_bound))
    stage = next(iter(TRIE.trie.arms(node)))
    session.next_model(stage, (dearest,))
    found = session.steps[-1].decision
    whole = planner.plan(within(objective.max_cost_usd, mix=False), node=node, stage=stage, may_stop=False)
    drawn = planner.plan(mixture.low, node=node, stage=stage, may_stop=False)
    assert (found.next_model, found.target) == ((drawn if drawn.is_feasible else whole).next_model, found.target)
    assert not drawn.is_feasible


def test_the_hull_leaves_out_what_a_mixture_beats():
    hull = Hull.of(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([0.1, 0.2, 0.6, 0.55, 0.7]))
    assert hull.cost_usd == (1.0, 3.0, 5.0)
    assert hull.value == (0.1, 0.6, 0.7)
