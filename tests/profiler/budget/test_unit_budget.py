"""Call by call: nothing is called for which not enough is set aside, in every mode, whatever the application catches."""

import threading

import pytest
from kit.crossed import crossed
from kit.toys.priced import PricedBackend
from kit.toys.profiling import catalog_for, cost_of, new_store, toy

from vinelm.errors import CallRefused
from vinelm.profiler import ExecutionConfig, ProfileSettings, WorkflowSource, profile
from vinelm.profiler.execution.job import UnitBudget
from vinelm.rows.observation import Usage

USAGE = Usage(model="m", cost_usd=0.25, latency_s=0.0)


def test_a_call_that_fits_asks_nobody():
    budget = UnitBudget(1.0, lambda upper: pytest.fail("asked"))
    budget.authorize(0.75).settle(USAGE)
    budget.authorize(0.75)  # 0.25 spent
    assert (budget.spent_usd, budget.calls) == (0.25, 1)


def test_more_is_asked_for_with_what_is_spent_and_under_way():
    asked = []
    budget = UnitBudget(1.0, lambda upper: asked.append(upper) or True)
    first = budget.authorize(0.5)
    budget.authorize(0.75)
    first.settle(USAGE)  # of 0.5, whatever else is under way
    budget.authorize(1.0)
    assert asked == [1.25, 0.25 + 0.75 + 1.0]
    assert not budget.was_refused


def test_a_refusal_is_remembered_and_the_next_call_refused_without_asking():
    asked = []
    budget = UnitBudget(1.0, lambda upper: bool(asked.append(upper)))
    for _ in range(2):
        with pytest.raises(CallRefused, match=r"up to \$2.000000"):
            budget.authorize(2.0)
    assert asked == [2.0]
    assert budget.was_refused


def test_those_who_watch_hear_of_every_call_and_reservation():
    settled, reserved = [], []
    budget = UnitBudget(1.0, lambda upper: False, on_settled=settled.append, on_reserved=reserved.append)
    first, second = budget.authorize(0.5), budget.authorize(0.25)
    first.settle(USAGE)
    second.close()
    budget.charge(USAGE)
    assert (settled, reserved) == ([0.25, 0.25, 0.25], [0.5, 0.75, 0.25, 0.0])
    assert (budget.spent_usd, budget.calls) == (0.75, 3)


def test_calls_of_many_threads_never_exceed_what_is_set_aside():
    granted = [1.0]

    def top_up(upper):
        if upper > 3.0:
            return False
        granted[0] = max(granted[0], upper)
        return True

    most, bounds = [0.0], []
    lock = threading.Lock()
    budget = UnitBudget(1.0, top_up, on_reserved=lambda usd: most.__setitem__(0, max(most[0], usd + budget.spent_usd)))

    def call():
        try:
            permit = budget.authorize(0.3)
        except CallRefused:
            return
        with lock:
            bounds.append(0.3)
        permit.settle(USAGE)

    threads = [threading.Thread(target=call) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] <= granted[0] + 1e-9 <= 3.0 + 1e-9
    assert budget.spent_usd == pytest.approx(0.25 * len(bounds))


PLACES = [
    ExecutionConfig(),
    ExecutionConfig(isolation="thread", workers=4),
    ExecutionConfig(
        isolation="process",
        workers=3,
        source=WorkflowSource(function="kit.toys.priced:load_priced", arguments={"n_requests": 6}),
    ),
]


@pytest.mark.parametrize(
    ("place", "cap"), crossed(PLACES, [0.009, 0.0155, 0.02]), ids=lambda given: getattr(given, "isolation", None)
)
def test_reservations_are_raised_to_the_real_bound_and_a_cap_holds(tmp_path, place, cap, one_zygote):
    workflow, backend = toy(n_requests=6), PricedBackend()
    catalog = catalog_for(workflow)
    with new_store(tmp_path / "s.db", workflow) as store:
        result = profile(
            workflow, catalog, {"test": backend}, store, ProfileSettings(budget_usd=cap, sampler="exhaustive", execution=place)
        )
        rows = store.observations()
        assert result.stopped_by == "budget"
        assert store.committed_usd() <= cap
        assert store.committed_usd() == pytest.approx(sum(row.cost_usd for row in rows))
        assert store.abandon_open() == 0
    alone = []
    spent = 0.0
    with new_store(tmp_path / "whole.db", workflow) as store:
        profile(workflow, catalog, {"test": backend}, store, ProfileSettings(sampler="exhaustive"))
        for row in store.observations():
            if spent + PricedBackend.upper > cap:
                break
            alone.append((row.request_id, row.prefix))
            spent += cost_of(*alone[-1])
    assert sorted((row.request_id, row.prefix) for row in rows) == sorted(alone)


def test_an_application_that_catches_everything_cannot_hide_a_refusal(tmp_path):
    def generate(state, model):
        try:
            return {"answer": model.invoke("question").text, "log": ["generate"]}
        except Exception:
            return {"answer": "right", "log": ["generate"]}

    def build(vine):
        from kit.toys import profiling

        class Stubborn:
            def stage(self, name, fn):
                return vine.stage(name, generate, state=profiling.State) if name == "generate" else vine.stage(name, fn)

            route = staticmethod(vine.route)

        return profiling.build(Stubborn())

    workflow = toy(build=build)
    with new_store(tmp_path / "s.db", workflow) as store:
        backends = {"test": PricedBackend()}
        result = profile(workflow, catalog_for(workflow), backends, store, ProfileSettings(budget_usd=0.005))
        assert (result.stopped_by, len(store), result.committed_usd) == ("budget", 0, 0.0)
