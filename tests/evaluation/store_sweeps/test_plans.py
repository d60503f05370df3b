"""Where the dollars of a plan go, and what other prices do."""

import pytest
from kit.stores import made_store
from kit.templates import agent
from kit.tries import random_merged

import vinelm
from vinelm.controller import Planner
from vinelm.evaluation.store_sweeps.check_quality import check_quality, share_interval
from vinelm.evaluation.store_sweeps.plan_spending import plan_spending
from vinelm.evaluation.store_sweeps.price_changes import price_changes
from vinelm.objective import Objective
from vinelm.traces import ObservationStore

PRICES = {"small": 0.001, "mid": 0.004, "large": 0.01}
ACCURACY = {"small": 0.5, "mid": 0.65, "large": 0.8}


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """A trie of three models, and its rows."""
    path = made_store(
        tmp_path_factory.mktemp("plans") / "s.db", ACCURACY, PRICES, requests=150, depth=3, walks=6, has_answers=True
    )
    with ObservationStore.open(path) as store:
        return vinelm.estimate(path, check=False), store.observations()


def invoked(steps, reach=1.0):
    """The share of the requests that comes to each step that runs a model."""
    for step in steps:
        if step["model"] is not None:
            share = reach * step["probability"]
            yield share
            yield from invoked(step["steps"], share)


def planned(annotated, objective):
    return Planner(annotated).plan(objective, elapsed_s=float(annotated.latency_s[0]))


@pytest.mark.parametrize("floor", [0.5, 0.7, 0.8])
def test_spending_adds_up(known, floor):
    annotated, _ = known
    decision = planned(annotated, Objective(minimize="cost", min_accuracy=floor))
    spent = plan_spending(decision)
    assert sum(one.cost_usd for one in spent) == pytest.approx(decision.path_cost_usd)
    assert sum(one.latency_s for one in spent) == pytest.approx(decision.ahead[2])
    assert sum(one.invocations for one in spent) == pytest.approx(sum(invoked(decision.steps)))


def test_a_plan_over_signals_adds_up_as_well(known):
    annotated, _ = known
    assert annotated.signals is not None
    decision = planned(annotated.signals, Objective(minimize="cost", min_accuracy=0.75))
    spent = plan_spending(decision)
    assert sum(one.cost_usd for one in spent) == pytest.approx(decision.path_cost_usd)
    assert {one.stage for one in spent} <= {"answer", "retry"}
    assert sum(one.invocations for one in spent) == pytest.approx(sum(invoked(decision.steps)))


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_over_merged_histories_adds_up_as_well(seed):
    annotated = random_merged(agent(2, 4, memory=1), seed)
    decision = planned(annotated, Objective(maximize="accuracy"))
    spent = plan_spending(decision)
    assert sum(one.cost_usd for one in spent) == pytest.approx(decision.plan.cost_usd - annotated.cost_usd[0])
    _, *changes = price_changes(annotated, Objective(maximize="accuracy"), annotated.trie.models)
    assert changes
    assert all(one.is_other or one.cost_usd == pytest.approx(one.kept_usd) for one in changes)


def test_prices_change_what_the_plan_costs_and_at_last_the_plan(known):
    annotated, _ = known
    objective = Objective(minimize="cost", min_accuracy=0.8)
    now, *changes = price_changes(annotated, objective, annotated.trie.models)
    assert (now.model, now.is_other) == (None, False)
    assert len(changes) == 6
    for one in changes:
        assert one.accuracy >= 0.8
        assert one.cost_usd <= one.kept_usd + 1e-12, "planning again never costs more than keeping the plan"
        if not one.is_other:
            assert one.cost_usd == pytest.approx(one.kept_usd)
    assert any(one.kept_usd > now.cost_usd for one in changes)
    nothing = price_changes(annotated, objective, ["unknown"])
    assert nothing == [now]


def test_the_check_is_compared_with_labels(known):
    _, rows = known
    first = [row for row in rows if row.depth == 1]
    whole, *by_model = check_quality(rows)
    assert whole.model is None
    assert whole.answers == len(first) == sum(one.answers for one in by_model)
    assert whole.accepted == sum(row.stopped for row in first)
    assert whole.accepted_wrong == sum(row.stopped and not row.success for row in first)
    assert whole.refused_right == sum(row.success and not row.stopped for row in first)
    assert [one.model for one in by_model] == sorted(ACCURACY)
    assert check_quality([]) == []


def test_the_interval_of_a_share():
    assert share_interval(0, 0) == (0.0, 1.0)
    low, high = share_interval(0, 20)
    assert (low, 0.05 < high < 0.2) == (0.0, True)
    low, high = share_interval(20, 20)
    assert (0.8 < low < 0.95, high) == (True, 1.0)
    low, high = share_interval(50, 100)
    assert (low, high) == (pytest.approx(0.403, abs=0.01), pytest.approx(0.597, abs=0.01))
