"""The priced plan: right on average with a pilot, wide without one, and nothing spent."""

import pytest
from profiling_toy import ToyBackend, catalog_for, cost_of, new_store, reachable, toy

from vinelm.profiler import forecast_profile, make_sampler, profile
from vinelm.profiler.dry_run.forecast import Wish
from vinelm.profiler.samplers import RequestPath


@pytest.fixture(autouse=True)
def shorter(monkeypatch):
    """A quarter of the cells that a plan plays through: seconds less, and intervals that have to hold all the same."""
    from vinelm.profiler.dry_run import forecast as plan

    monkeypatch.setattr(plan, "_WORK", plan._WORK // 4)


def planned(workflow, wish, rows=(), sampler="cascade", committed_usd=0.0):
    catalog = catalog_for(workflow)
    template = workflow.template.bind(tuple(catalog))
    ids = [request.id for request in workflow.requests]
    sampler = make_sampler(sampler, template, ids, 0) if isinstance(sampler, str) else sampler
    return forecast_profile(template, catalog, ids, sampler, wish, rows=rows, committed_usd=committed_usd)


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


class InRounds:
    """Doubles its rounds, and sends a request on only where it was seen to go on: no plan can know that beforehand."""

    def __init__(self, workflow):
        self.workflow, self.asked = workflow, []

    def walks(self, round_, seen):
        self.asked.append((round_, len(seen)))
        models, requests = self.workflow.template.models, self.workflow.requests
        if round_ == 0:
            return [RequestPath(requests[0].id, (models[0],))]
        known = {(row.request_id, row.prefix): row for row in seen}
        fresh = [
            RequestPath(request.id, (model,)) for request in requests for model in models if (request.id, (model,)) not in known
        ]
        deeper = [
            RequestPath(request_id, (*prefix, model))
            for (request_id, prefix), row in known.items()
            if not row.stopped and len(prefix) < self.workflow.template.depth
            for model in models
            if (request_id, (*prefix, model)) not in known
        ]
        return (deeper + fresh)[: 2**round_]


def test_an_adaptive_sampler_is_priced_over_all_its_rounds(tmp_path):
    """Each is proposed once, however many plays there are; with a pilot the interval holds what its real run costs."""
    workflow = toy(n_requests=20, n_models=3)
    with new_store(tmp_path / "s.db", workflow) as store:
        run = {"workflow": workflow, "catalog": catalog_for(workflow), "backends": {"test": ToyBackend()}, "store": store}
        pilot = profile(**run, coverage=0.1)
        sampler = InRounds(workflow)
        plan = planned(workflow, Wish(coverage=0.6), store.observations(), sampler)
        before = len(store)
        result = profile(**run, sampler=InRounds(workflow), coverage=0.6)
    assert [round_ for round_, _ in sampler.asked] == list(range(len(sampler.asked)))  # each once
    assert plan.rounds >= 5
    assert plan.stopped_by == "coverage"
    assert plan.cells.low <= result.executed <= plan.cells.high
    assert plan.cost_usd.low <= result.spent_usd - pilot.spent_usd <= plan.cost_usd.high
    assert result.executed > 2**4 > before / 4


def test_a_sampler_of_one_round_says_so():
    assert planned(toy(n_requests=5), Wish(), sampler="exhaustive").rounds == 1


@pytest.mark.parametrize("stop", ["workflow", "oracle"])
def test_without_checkpoints_every_path_is_priced(tmp_path, stop):
    workflow = toy(n_requests=12, stop=stop)
    template = workflow.template
    naive = sum(
        cost_of(*cell) * len(template.models) ** (template.depth - len(cell[1])) for cell in reachable(workflow)
    )  # what a run of every leaf path pays
    wish = Wish(checkpoints=False)
    with new_store(tmp_path / "s.db", workflow) as store:
        run = {"workflow": workflow, "catalog": catalog_for(workflow), "backends": {"test": ToyBackend()}, "store": store}
        shared = planned(workflow, Wish(), sampler="exhaustive")
        assert planned(workflow, wish, sampler="exhaustive").cost_usd.middle > 1.5 * shared.cost_usd.middle
        profile(**run, sampler="exhaustive", checkpoints=False, budget_usd=naive / 3)
        rows, committed = store.observations(), store.committed_usd()
        plan = planned(workflow, wish, rows, "exhaustive", committed)
        assert plan.cost_usd.low <= naive - committed <= plan.cost_usd.high
        capped = planned(workflow, Wish(checkpoints=False, budget_usd=committed + 0.001), rows, "exhaustive", committed)
        assert capped.stopped_by == "budget"
        assert capped.cost_usd == pytest.approx((0.001,) * 3)
        result = profile(**run, sampler="exhaustive", checkpoints=False)
        assert result.committed_usd == pytest.approx(naive, rel=0.05)  # the walk that was cut short is made again
    done = planned(workflow, wish, rows, "exhaustive", naive * 2)
    assert (done.cost_usd.high, done.total_calls) == (0.0, 0.0)


def test_a_long_run_without_checkpoints_is_extrapolated_to_the_same_price():
    workflow = toy(n_requests=1_200, n_models=4)
    plan = planned(workflow, Wish(checkpoints=False), sampler="exhaustive")
    assert plan.is_extrapolated
    least, most = 1_200 * 64, 1_200 * 64 * 3  # calls: every leaf path, ended early or not at all
    assert least / 2 < plan.total_calls < 2 * most
