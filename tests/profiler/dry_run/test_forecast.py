"""The forecast: right on average with a pilot, wide without one, and nothing spent."""

import pytest
from kit.toys.profiling import ToyBackend, catalog_for, cost_of, new_store, reachable, toy
from kit.toys.rounds import DoublingRounds

from vinelm import Loop, Stage, Template
from vinelm.estimator.observation_table import ObservationTable
from vinelm.profiler import ProfileLimits, ProfileSettings, forecast_profile, make_sampler, profile
from vinelm.profiler.dry_run.forecast import needs_of
from vinelm.requests.protocols import RequestPath
from vinelm.trie import Trie


@pytest.fixture(autouse=True)
def shorter(monkeypatch):
    """A tenth of the simulated cells: seconds less, and intervals that have to hold all the same."""
    from vinelm.profiler.dry_run import forecast

    monkeypatch.setattr(forecast, "_WORK", forecast._WORK // 10)


def forecast_of(workflow, rows=(), sampler="cascade", committed_usd=0.0, *, workers=1, **limits):
    catalog = catalog_for(workflow)
    template = workflow.template.bind(tuple(catalog))
    ids = [request.id for request in workflow.requests]
    sampler = make_sampler(sampler, template, ids, 0) if isinstance(sampler, str) else sampler
    return forecast_profile(
        template, catalog, ids, sampler, ProfileLimits(**limits), workers=workers, rows=rows,
        committed_usd=committed_usd,
    )  # fmt: skip


@pytest.mark.long
def test_with_a_pilot_the_interval_holds_what_comes(tmp_path):
    workflow = toy(n_requests=30, n_models=3)
    held = []
    with new_store(tmp_path / "s.db", workflow) as store:
        backends = {"test": ToyBackend()}
        run = {"workflow": workflow, "catalog": catalog_for(workflow), "backends": backends, "store": store}
        spent = profile(**run, settings=ProfileSettings(coverage=0.05)).spent_usd
        for target in (0.2, 0.5, 1.0):
            before = len(store)
            forecast = forecast_of(workflow, store.observations(), coverage=target)
            result = profile(**run, settings=ProfileSettings(coverage=target))
            cost, spent = result.spent_usd - spent, result.spent_usd
            held += [
                forecast.cost_usd.low <= cost <= forecast.cost_usd.high,
                forecast.cells.low <= len(store) - before <= forecast.cells.high,
            ]
            assert cost / forecast.cost_usd.middle == pytest.approx(1, abs=0.5)
            assert forecast.pilot_rows == before
            assert forecast.stopped_by in ("coverage", "complete")
    assert sum(held) >= 5


def test_without_one_it_is_wide_and_holds_the_truth():
    workflow = toy(n_requests=20)
    forecast = forecast_of(workflow, sampler="exhaustive")
    total = sum(cost_of(*cell) for cell in reachable(workflow))
    assert forecast.cost_usd.low < total < forecast.cost_usd.high
    assert forecast.pilot_rows == 0
    assert forecast.cells.low <= len(list(reachable(workflow))) <= forecast.cells.high
    assert forecast.hours.low > 0
    assert set(forecast.calls) == {"m0", "m1"}
    assert forecast_of(workflow, sampler="exhaustive") == forecast


def test_budgets_cap_the_forecast():
    workflow = toy(n_requests=50)
    forecast = forecast_of(workflow, budget_usd=0.01)
    assert forecast.cost_usd.high <= 0.01
    assert forecast.stopped_by == "budget"
    assert forecast_of(workflow, budget_calls=7).all_calls.high <= 7
    assert forecast_of(workflow, budget_usd=0.01, committed_usd=0.01).cells.high == 0


def test_more_workers_take_fewer_hours():
    workflow = toy(n_requests=20)
    one, four = (forecast_of(workflow, sampler="exhaustive", workers=n).hours.middle for n in (1, 4))
    assert four == pytest.approx(one / 4)


def test_a_huge_run_is_extrapolated():
    workflow = toy(n_requests=2_000, n_models=4)
    forecast = forecast_of(workflow, sampler="exhaustive")
    assert forecast.is_extrapolated
    least, most = 2_000 * 4, 2_000 * (4 + 16 + 64)
    assert least / 2 < forecast.cells.low <= forecast.cells.high < 2 * most


def test_an_adaptive_sampler_is_priced_over_all_its_rounds(tmp_path):
    """Each is proposed once, however many simulations there are; with a pilot the interval holds what its real run costs."""
    workflow = toy(n_requests=20, n_models=3)
    with new_store(tmp_path / "s.db", workflow) as store:
        run = {"workflow": workflow, "catalog": catalog_for(workflow), "backends": {"test": ToyBackend()}, "store": store}
        pilot = profile(**run, settings=ProfileSettings(coverage=0.1))
        sampler = DoublingRounds(workflow)
        forecast = forecast_of(workflow, store.observations(), sampler, coverage=0.6)
        before = len(store)
        result = profile(**run, settings=ProfileSettings(sampler=DoublingRounds(workflow), coverage=0.6))
    assert [round_ for round_, _ in sampler.asked] == list(range(len(sampler.asked)))  # each once
    assert forecast.rounds >= 5
    assert forecast.stopped_by == "coverage"
    assert forecast.cells.low <= result.executed <= forecast.cells.high
    assert forecast.cost_usd.low <= result.spent_usd - pilot.spent_usd <= forecast.cost_usd.high
    assert result.executed > 2**4 > before / 4


def test_a_sampler_of_one_round_says_so():
    assert forecast_of(toy(n_requests=5), sampler="exhaustive").rounds == 1


class GoingOn:
    """Two paths of every request, to their ends or as far as the workflow's own check lets them."""

    def __init__(self, goes_on):
        self.goes_on = goes_on

    def propose(self, round_, observations):
        paths = [("m0", "m0", "m0"), ("m0", "m1", "m0")] if round_ == 0 else []
        return [RequestPath(f"q{i}", path, goes_on=self.goes_on) for i in range(10) for path in paths]


def test_paths_that_go_on_are_priced_to_their_ends(tmp_path):
    workflow = toy(n_requests=10)
    forecast = forecast_of(workflow, sampler=GoingOn(True))
    assert forecast.cells.low == forecast.cells.high == 50
    assert forecast_of(workflow, sampler=GoingOn(False)).cells.middle < 50
    with new_store(tmp_path / "s.db", workflow) as store:
        result = profile(workflow, catalog_for(workflow), {"test": ToyBackend()}, store, ProfileSettings(sampler=GoingOn(True)))
        assert result.executed == 50
        assert forecast_of(workflow, store.observations(), sampler=GoingOn(True)).cells.high == 0


def test_what_is_needed_stands_beside_what_is_left():
    workflow = toy(n_requests=20)
    template = workflow.template.bind(tuple(catalog_for(workflow)))
    forecast = forecast_of(workflow, sampler="exhaustive")
    limits = ProfileLimits(budget_usd=forecast.cost_usd.high / 2, budget_calls=100)
    needs = needs_of(forecast, limits, template, 20, coverage=1.0, committed_usd=forecast.cost_usd.high / 4)
    assert needs.left_usd == pytest.approx(forecast.cost_usd.high / 4)
    assert needs.short_usd == pytest.approx(forecast.cost_usd.high * 3 / 4)
    assert needs.left_calls == 100
    assert needs.requests == (20, 20, 20)  # every path of every request
    assert needs.calls == forecast.all_calls
    assert needs.left_rows == 20 * Trie.from_template(template).n_nodes
    assert needs.rows.high <= needs.left_rows


def test_without_a_budget_nothing_is_short():
    workflow = toy(n_requests=5)
    forecast = forecast_of(workflow, coverage=0.5)
    template = workflow.template.bind(tuple(catalog_for(workflow)))
    needs = needs_of(forecast, ProfileLimits(), template, 5, coverage=0.5)
    assert (needs.left_usd, needs.left_calls, needs.short_usd) == (None, None, 0.0)


def test_the_order_in_which_units_ended_changes_nothing(tmp_path):
    workflow = toy(n_requests=20, n_models=3)
    with new_store(tmp_path / "s.db", workflow) as store:
        profile(workflow, catalog_for(workflow), {"test": ToyBackend()}, store, ProfileSettings(coverage=0.2))
        rows = store.observations()
    assert len({row.request_id for row in rows}) > 5
    assert forecast_of(workflow, rows, coverage=0.5) == forecast_of(workflow, rows[::-1], coverage=0.5)


class SeenRows:
    """Six calls of each of ten requests, and then nothing but the rows that they are said to have given."""

    def __init__(self):
        self._rows = ()

    @property
    def rows(self):
        return self._rows

    def propose(self, round_, observations):
        self._rows = observations
        return [RequestPath(f"q{i}", ("m0",) * 6) for i in range(10)] if round_ == 0 else []


def test_a_request_goes_on_only_where_the_template_lets_its_own_stages_go_on():
    """Two loops in a row: how many turns are left of the second hangs on those of the first. `vinelm try --dry-run` failed."""
    models = ("m0", "m1")
    template = Template(
        (Loop((Stage("draft", models),), times=3, early_exit=True), Loop((Stage("revise", models),), times=3)), stop="workflow"
    )
    sampler = SeenRows()
    forecast_of(toy(n_requests=10, template=template), sampler=sampler)
    assert len(sampler.rows) >= 20
    ObservationTable.from_observations(
        sampler.rows, template, Trie.from_template(template)
    )  # raises where a row goes on to a stage that is not there
