"""The priced plan: right on average with a pilot, wide without one, and nothing spent."""

import pytest
from profiling_toy import ToyBackend, catalog_for, cost_of, new_store, reachable, toy

from vinelm.profiler.plan import Wish, plan_profile
from vinelm.profiler.runner import profile
from vinelm.profiler.sampling import make_sampler


def planned(workflow, wish, rows=(), sampler="cascade", committed_usd=0.0):
    catalog = catalog_for(workflow)
    template = workflow.template.bind(tuple(catalog))
    ids = [request.id for request in workflow.requests]
    return plan_profile(
        template, catalog, ids, make_sampler(sampler, template, ids, 0), wish, rows=rows, committed_usd=committed_usd
    )


def test_with_a_pilot_the_interval_holds_what_comes(tmp_path):
    workflow = toy(n_requests=30, n_models=3)
    held = []
    with new_store(tmp_path / "s.db", workflow) as store:
        backends = {"test": ToyBackend()}
        run = {"workflow": workflow, "catalog": catalog_for(workflow), "backends": backends, "store": store}
        spent = profile(**run, coverage=0.05).spent_usd
        for target in (0.2, 0.5, 1.0):
            before = len(store)
            plan = planned(workflow, Wish(coverage=target), store.observations())
            result = profile(**run, coverage=target)
            cost, spent = result.spent_usd - spent, result.spent_usd
            held += [plan.cost_usd.low <= cost <= plan.cost_usd.high, plan.cells.low <= len(store) - before <= plan.cells.high]
            assert cost / plan.cost_usd.middle == pytest.approx(1, abs=0.5)
            assert plan.pilot_rows == before
            assert plan.stopped_by in ("coverage", "complete")
    assert sum(held) >= 5


def test_without_one_it_is_wide_and_holds_the_truth():
    workflow = toy(n_requests=20)
    plan = planned(workflow, Wish(), sampler="exhaustive")
    total = sum(cost_of(*cell) for cell in reachable(workflow))
    assert plan.cost_usd.low < total < plan.cost_usd.high
    assert plan.pilot_rows == 0
    assert plan.cells.low <= len(list(reachable(workflow))) <= plan.cells.high
    assert plan.hours.low > 0
    assert set(plan.calls) == {"m0", "m1"}
    assert planned(workflow, Wish(), sampler="exhaustive") == plan


def test_budgets_cap_the_plan():
    workflow = toy(n_requests=50)
    plan = planned(workflow, Wish(budget_usd=0.01))
    assert plan.cost_usd.high <= 0.01
    assert plan.stopped_by == "budget"
    assert planned(workflow, Wish(budget_calls=7)).total_calls <= 7
    assert planned(workflow, Wish(budget_usd=0.01), committed_usd=0.01).cells.high == 0


def test_more_workers_take_fewer_hours():
    workflow = toy(n_requests=20)
    one, four = (planned(workflow, Wish(workers=n), sampler="exhaustive").hours.middle for n in (1, 4))
    assert four == pytest.approx(one / 4)


def test_a_huge_run_is_extrapolated():
    workflow = toy(n_requests=2_000, n_models=4)
    plan = planned(workflow, Wish(), sampler="exhaustive")
    assert plan.is_extrapolated
    least, most = 2_000 * 4, 2_000 * (4 + 16 + 64)
    assert least / 2 < plan.cells.low <= plan.cells.high < 2 * most
