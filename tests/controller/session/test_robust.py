"""What must never cost the application its answer: sources that fail, engines and models that are gone, foreign stages."""

import threading

import pytest
from conftest import make_catalog, random_table

from vinelm.api import VineLM
from vinelm.clock import VirtualClock
from vinelm.controller import BackgroundLoadMonitor, InFlightLoadMonitor, Planner, ReportedLoadMonitor, Session, SlowdownCurve
from vinelm.errors import ConfigError
from vinelm.objective import Objective

OBJECTIVE = Objective(maximize="accuracy", max_latency_s=4.0)
LINE = SlowdownCurve((0.0, 10.0), (0.0, 5.0))


@pytest.fixture
def annotated():
    return random_table(3, n_requests=60, n_models=3, depth=3).annotate()


class Backend:
    is_simulated = is_virtual_time = False


def vine_of(annotated, catalog=None, **settings):
    return VineLM(catalog or annotated.catalog, {"test": Backend()}, trie=annotated, **settings)


@pytest.mark.parametrize("extra_s", [float("nan"), -1.0, float("inf"), "much", None])
def test_a_load_that_is_no_number_of_seconds_does_not_cost_the_plan(annotated, extra_s):
    planner = Planner(annotated)
    session = Session(planner, OBJECTIVE, clock=VirtualClock(), load=lambda: {"east": extra_s})
    assert session.next_model("generate", ()) == planner.plan(OBJECTIVE).next_model
    assert "no load known" in session.steps[0].note or extra_s is None


def test_a_source_that_hangs_holds_up_no_decision(annotated):
    let_go = threading.Event()
    session = vine_of(annotated, load=let_go.wait).session(OBJECTIVE)
    assert session.next_model("generate", ()) == Planner(annotated).plan(OBJECTIVE).next_model
    assert "the load source has not answered" in session.steps[0].note
    let_go.set()


def test_a_monitor_of_the_users_is_read_apart_and_ours_directly(annotated):
    fast = vine_of(annotated, load=lambda: {"east": 50.0})
    fast._load_seen._patience_s = 10.0
    session = fast.session(OBJECTIVE)
    assert session.next_model("generate", ()) == Planner(annotated).plan(OBJECTIVE, load={"east": 50.0}).next_model
    assert isinstance(fast._load_seen, BackgroundLoadMonitor)
    assert fast._load_seen is fast._load_seen
    for ours in (InFlightLoadMonitor(), ReportedLoadMonitor({"east": LINE})):
        assert vine_of(annotated, load=ours)._load_seen is ours
    assert isinstance(vine_of(annotated)._load_seen, InFlightLoadMonitor)


def test_an_engine_that_disappears_is_planned_without_its_load(annotated):
    clock, planner = VirtualClock(), Planner(annotated)
    monitor = ReportedLoadMonitor({"east": LINE, "west": LINE}, clock=clock)
    monitor.report("east", 60)
    loaded = Session(planner, OBJECTIVE, clock=VirtualClock(), load=monitor)
    assert loaded.next_model("generate", ()) == planner.plan(OBJECTIVE, load={"east": 30.0}).next_model
    clock.sleep(30.0)
    stale = Session(planner, OBJECTIVE, clock=VirtualClock(), load=monitor)
    stale.next_model("generate", ())
    assert "old load report of east" in stale.steps[0].note
    clock.sleep(31.0)
    gone = Session(planner, OBJECTIVE, clock=VirtualClock(), load=monitor)
    assert gone.next_model("generate", ()) == planner.plan(OBJECTIVE).next_model


def test_an_engine_that_the_trie_does_not_know_is_ignored(annotated):
    planner = Planner(annotated)
    session = Session(planner, OBJECTIVE, clock=VirtualClock(), load=lambda: {"elsewhere": 9.0})
    assert session.next_model("generate", ()) == planner.plan(OBJECTIVE).next_model
    assert session.steps[0].note == ""


@pytest.mark.parametrize("gone", ["m0", "m1", "m2"])
def test_a_model_that_left_the_catalog_is_never_run_and_the_trace_says_so(annotated, gone):
    left = make_catalog(3).subset(tuple(name for name in ("m0", "m1", "m2") if name != gone))
    vine = vine_of(annotated, left)
    session = vine.session(Objective(maximize="accuracy"))
    prefix = ()
    for stage in ("generate", "repair", "repair"):
        prefix = (*prefix, session.next_model(stage, prefix))
    assert gone not in prefix
    assert all(f"not served any more, left out: {gone}" in step["note"] for step in session.trace())
    beyond = session.next_model("repair", prefix)  # nothing is planned there: the default, which may be the one that is gone
    assert beyond in left
    assert vine.session(OBJECTIVE).next_model("generate", ("m0",)) in left


def test_the_default_is_the_one_that_the_application_declared(annotated):
    vine = vine_of(annotated, mode="off")
    vine.adapter.declare("generate", "m2")
    session = vine.session(OBJECTIVE)
    assert session.next_model("generate", ()) == "m2"
    assert session.next_model("repair", ("m2",)) == "m0"


def test_a_stage_of_another_workflow_runs_a_default(annotated):
    session = vine_of(annotated).session(OBJECTIVE)
    assert session.next_model("polish", ()) in annotated.catalog
    assert "not planned for" in session.steps[0].note


@pytest.mark.parametrize("jump_s", [-1e9, float("nan")])
def test_a_clock_that_jumps_gives_no_time_back(annotated, jump_s):
    clock = VirtualClock(5.0)
    session = Session(Planner(annotated), OBJECTIVE, clock=clock)
    clock.sleep(2.0)
    session.next_model("generate", ())
    clock.seconds += jump_s
    session.next_model("repair", ("m0",))
    assert [step.elapsed_s for step in session.steps] == [2.0, 2.0]


def test_an_arrival_in_the_future_has_used_no_time(annotated):
    session = Session(Planner(annotated), OBJECTIVE, clock=VirtualClock(5.0), started_at=9.0)
    assert session.elapsed_s() == 0.0


@pytest.mark.parametrize(
    "bounds", [{"max_cost_usd": -0.1}, {"max_cost_usd": float("nan")}, {"max_latency_s": float("inf")}, {"min_accuracy": 1.5}]
)
def test_a_budget_that_is_none_is_refused_before_any_call(annotated, bounds):
    with pytest.raises(ConfigError, match=next(iter(bounds))):
        Objective(maximize="accuracy", **bounds)
    with pytest.raises(ConfigError, match=next(iter(bounds))):
        vine_of(annotated).context({"maximize": "accuracy", **bounds})


@pytest.fixture
def few_paths(monkeypatch):
    """Only tries of at most ten paths are small enough for the stochastic program."""
    monkeypatch.setattr("vinelm.controller.planning.contingent.grid_problem.MOST_IN_TIME", 10)
    return Objective(maximize="accuracy", max_latency_s=4.0, risk="dp", late_weight=0.5)


def test_a_stochastic_program_over_too_many_paths_is_refused_where_it_is_declared(annotated, few_paths):
    with pytest.raises(ConfigError, match="at most 10 paths") as refused:
        vine_of(annotated).prepare(few_paths)
    assert refused.value.code == "dp-too-large"
    with pytest.raises(ConfigError, match="at most 10 paths"):
        vine_of(annotated, on_error="raise").session(few_paths)


def test_a_request_that_asks_for_it_is_planned_with_a_margin_instead(annotated, few_paths):
    session = vine_of(annotated).session(few_paths)
    margin = Objective(maximize="accuracy", max_latency_s=4.0, risk="mean+sd")
    assert session.next_model("generate", ()) == Planner(annotated).plan(margin, may_stop=False).next_model
    assert "planned with mean+sd" in session.trace()[0]["note"]
