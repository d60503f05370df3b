import threading

import pytest
from kit.tables import random_table

from vinelm.clock import VirtualClock
from vinelm.controller import InFlightLoadMonitor, Planner, Session, SlowdownCurve
from vinelm.errors import ConfigError, InfeasibleError
from vinelm.objective import Objective
from vinelm.policies.policy import Policy
from vinelm.requests.protocols import Invocation
from vinelm.rows.observation import Usage

OBJECTIVE = Objective(maximize="accuracy", max_latency_s=4.0)


@pytest.fixture
def planner():
    return Planner(random_table(3, n_requests=60, n_models=3, depth=3).annotate())


def ran(prefix, *, cost_usd=0.001, failure=None):
    stage = "generate" if len(prefix) == 1 else "repair"
    usage = Usage(model=prefix[-1], cost_usd=cost_usd, latency_s=1.0)
    return Invocation(stage=stage, prefix=prefix, latency_s=1.0, usages=(usage,), failure=failure)


def session_of(planner, objective=OBJECTIVE, **settings):
    clock = VirtualClock(100.0)
    return Session(planner, objective, clock=clock, **settings), clock


def test_a_session_is_a_policy(planner):
    assert isinstance(session_of(planner)[0], Policy)


def test_it_replans_from_the_prefix_it_is_given_with_what_was_really_spent(planner):
    objective = Objective(maximize="accuracy", max_latency_s=4.0, max_cost_usd=0.02, cost_budget="per_request")
    session, clock = session_of(planner, objective)
    first = session.next_model("generate", ())
    assert first == planner.plan(objective).next_model
    clock.sleep(1.5)
    session.record(ran((first,), cost_usd=0.007))
    expected = planner.plan(objective, node=planner.trie.node((first,)), elapsed_s=1.5, spent_usd=0.007)
    assert session.should_continue((first,), False, {}) is not expected.stop
    step = session.steps[-1]
    assert (step.elapsed_s, step.spent_usd, step.decision.target) == (1.5, 0.007, expected.target)


@pytest.mark.parametrize(("wait_s", "plans"), [(0.0, 2), (0.04, 2), (0.06, 3)])
def test_the_plan_of_a_loops_edge_stands_for_the_invocation_that_follows_at_once(planner, wait_s, plans):
    session, clock = session_of(planner, Objective(maximize="accuracy", max_latency_s=1000.0))
    first = session.next_model("generate", ())
    session.record(ran((first,)))
    assert session.should_continue((first,), False, {}) is True
    clock.sleep(wait_s)
    model = session.next_model("repair", (first,))
    node = planner.trie.node((first,))
    assert model == planner.plan(session.objective, node=node, elapsed_s=wait_s, may_stop=False).next_model
    assert len({id(decision) for decision in session.decisions}) == plans
    assert [(step.kind, step.model) for step in session.steps[1:]] == [("end", model), ("model", model)]
    assert [step.elapsed_s for step in session.steps[1:]] == [0.0, pytest.approx(wait_s)]


def test_the_plan_of_a_loops_edge_falls_with_the_next_outcome(planner):
    session, _ = session_of(planner, Objective(maximize="accuracy", max_latency_s=1000.0))
    first = session.next_model("generate", ())
    session.record(ran((first,)))
    session.should_continue((first,), False, {})
    second = session.next_model("repair", (first,))
    session.record(ran((first, second), failure="server"))
    other = session.next_model("repair", (first,))
    assert planner.engine_of[other] != planner.engine_of[second]
    session.should_continue((first,), False, {})
    session.record(ran((first, other), cost_usd=0.5))
    session.next_model("repair", (first, other))
    assert session.steps[-1].spent_usd == pytest.approx(0.502)


def test_a_route_ends_where_the_plan_ends_and_where_the_workflow_does(planner):
    session, clock = session_of(planner)
    model = session.next_model("generate", ())
    session.record(ran((model,)))
    assert session.should_continue((model,), True, {}) is False
    clock.sleep(100.0)
    assert session.should_continue((model,), False, {}) is False
    assert session.steps[-1].decision.binding == "max_latency_s"
    assert session.should_continue((model, "m0", "m0"), False, {}) is False


def test_retries_and_fan_outs_get_the_same_model_and_their_costs_all_count(planner):
    session, clock = session_of(planner)
    first = session.next_model("generate", ())
    clock.sleep(3.5)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(session.next_model("generate", ()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(answers) == {first}
    assert len(session.steps) == 1
    session.record(ran((first,), cost_usd=0.002, failure="timeout"))
    session.record(ran((first,), cost_usd=0.003))
    assert session.spent_usd == pytest.approx(0.005)


def test_after_a_failure_the_same_prefix_is_planned_with_the_time_that_is_left(planner):
    session, clock = session_of(planner)
    first = session.next_model("generate", ())
    clock.sleep(3.0)
    session.record(ran((first,), failure="timeout"))
    assert session.next_model("generate", ()) == planner.plan(OBJECTIVE, elapsed_s=3.0).next_model
    assert session.steps[-1].elapsed_s == 3.0


def test_a_resumed_session_counts_what_it_did_not_see_at_its_expected_price(planner):
    session, _ = session_of(planner)
    session.next_model("repair", ("m1",))
    node = planner.trie.node(("m1",))
    assert session.steps[-1].spent_usd == planner.annotated.cost_usd[node]
    session.record(ran(("m1", "m0"), cost_usd=0.5))
    session.next_model("repair", ("m1", "m0"))
    assert session.steps[-1].spent_usd == planner.annotated.cost_usd[node] + 0.5


def test_stages_beyond_the_bound_or_off_the_template_run_the_default(planner):
    session, _ = session_of(planner)
    assert session.next_model("repair", ("m1", "m1", "m1")) == "m0"
    assert "a turn more than its loop's times=2" in session.steps[-1].note
    assert session.next_model("repair", ("m1", "gone")) == "m0"
    assert "not planned for" in session.steps[-1].note
    assert session.next_model("generate", ("m1",)) == "m0"
    assert "not planned for" in session.steps[-1].note


def test_a_clock_that_jumps_back_does_not_give_time_back(planner):
    session, clock = session_of(planner)
    clock.sleep(2.0)
    assert session.elapsed_s() == 2.0
    clock.seconds = 50.0
    assert session.elapsed_s() == 2.0


def test_observe_plans_and_changes_nothing(planner):
    session, clock = session_of(planner, mode="observe")
    wanted = planner.plan(OBJECTIVE).next_model
    assert session.next_model("generate", ()) == "m0"
    assert session.decisions[0].next_model == wanted
    assert f"would have run {wanted}" in session.steps[0].note
    clock.sleep(100.0)
    assert session.should_continue(("m0",), False, {}) is True
    assert "would have ended" in session.steps[-1].note
    assert session.should_continue(("m0",), True, {}) is False
    assert session.should_continue(("m0", "m0", "m0"), False, {}) is False  # the template's bound holds in every mode


def test_off_does_not_plan(planner):
    session, _ = session_of(planner, mode="off")
    assert session.next_model("generate", ()) == "m0"
    assert session.should_continue(("m0",), False, {}) is True
    assert session.decisions == []


class Broken(Planner):
    def plan(self, objective, **asked):
        raise ZeroDivisionError("secret")


def test_its_own_failure_never_breaks_the_application(planner):
    broken = Broken(planner.annotated)
    session, _ = session_of(broken)
    assert session.next_model("generate", ()) == "m0"
    assert "controller failed" in session.steps[-1].note
    assert "secret" not in str(session.trace())
    assert session.should_continue(("m0",), False, {}) is True
    assert session.should_continue(("m0",), True, {}) is False
    with pytest.raises(ZeroDivisionError):
        session_of(broken, on_error="raise")[0].next_model("generate", ())


def test_an_objective_that_wants_to_raise_raises(planner):
    session, _ = session_of(planner, Objective(maximize="accuracy", max_latency_s=0.0, on_infeasible="raise"))
    with pytest.raises(InfeasibleError):
        session.next_model("generate", ())


def test_a_load_source_that_fails_does_not_cost_the_plan(planner):
    def fails():
        raise OSError

    session, _ = session_of(planner, load=fails)
    assert session.next_model("generate", ()) == planner.plan(OBJECTIVE).next_model
    assert "no load known" in session.steps[-1].note
    heavy = {"east": 50.0}
    session, _ = session_of(planner, load=lambda: heavy)
    assert session.next_model("generate", ()) == planner.plan(OBJECTIVE, load=heavy).next_model


def test_calls_under_way_are_counted_out_and_in_once_each_however_they_end(planner):
    calls = InFlightLoadMonitor({"east": SlowdownCurve((0.0, 1.0, 2.0), (0.0, 10.0, 20.0))}, clock=VirtualClock())

    def in_flight():
        delays = calls.delays()
        return delays["east"].extra_s / 10.0 if "east" in delays else 0.0

    (other, _), (session, _) = (  # m0 and m2 are on the engine east
        session_of(planner, load=calls, mode="off", default=lambda stage, model=model: model) for model in ("m0", "m2")
    )
    other.next_model("generate", ())
    session.next_model("generate", ())
    assert in_flight() == 2.0
    for _ in range(3):  # the branches of a fan-out: one question, three outcomes
        session.record(ran(("m2",), failure="server"))
    assert in_flight() == 1.0
    session.next_model("generate", ())
    assert in_flight() == 2.0
    session.interrupted(("m2",))
    assert in_flight() == 1.0
    other.record(ran(("m0",), failure="server"))
    assert in_flight() == 0.0


def test_the_oracle_stop_asks_the_judge_and_only_the_judge():
    planner = Planner(random_table(4, n_requests=60, n_models=2, depth=3, stop="oracle").annotate())
    with pytest.raises(ConfigError, match="judge"):
        Session(planner, OBJECTIVE)
    session, _ = session_of(planner, Objective(maximize="accuracy"), judge=lambda state: state["right"])
    assert session.should_continue(("m0",), False, {"right": True}) is False
    assert session.should_continue(("m0",), True, {"right": False}) is True
    off, _ = session_of(planner, mode="off", judge=lambda state: False)
    assert off.should_continue(("m0",), True, {}) is True
    assert off.should_continue(("m0", "m0", "m0"), True, {}) is False


def test_the_trace_is_plain_and_gives_reasons(planner):
    import json

    session, _ = session_of(planner)
    model = session.next_model("generate", ())
    session.record(ran((model,)))
    session.should_continue((model,), False, {})
    plain = json.loads(json.dumps(session.trace()))
    assert [entry["kind"] for entry in plain] == ["model", "end"]
    assert "accuracy" in plain[0]["decision"]["reason"]


@pytest.mark.parametrize("setting", [{"mode": "on"}, {"on_error": "ignore"}])
def test_unknown_settings_are_refused(planner, setting):
    with pytest.raises(ConfigError, match="use '"):
        Session(planner, OBJECTIVE, **setting)


def test_the_trace_says_which_answer_was_returned(planner):
    session = Session(planner, Objective(maximize="accuracy"), clock=VirtualClock())
    path = ("m0", "m1")
    session.note_returned(path, "returned answer 1: two of three agree")
    assert session.last_step()["note"] == "returned answer 1: two of three agree"
    assert session.explain().startswith("[m0/m1] end: end here (0 s and $")
    assert session.explain().endswith("- returned answer 1: two of three agree")


def test_nothing_stays_under_way_where_its_followers_cannot_be_told_the_end(planner, monkeypatch):
    """The adapter then says that the invocation was interrupted, which must not take the way that has failed."""
    under_way = []

    class Monitor(InFlightLoadMonitor):
        def dispatched(self, engine):
            under_way.append(engine)

        def finished(self, engine, excess_s):
            under_way.remove(engine)

    session = Session(planner, OBJECTIVE, clock=VirtualClock(), load=Monitor())
    path = (session.next_model("generate", ()),)
    assert len(under_way) == 1

    def fails(*_):
        raise RuntimeError

    monkeypatch.setattr(Session, "_tell", fails)
    session.interrupted(path)
    assert not under_way


def test_the_trace_says_that_a_follower_was_not_told_of_an_interruption(planner, monkeypatch):
    def fails(*_):
        raise ZeroDivisionError

    session = Session(planner, OBJECTIVE, clock=VirtualClock(), load=InFlightLoadMonitor())
    monkeypatch.setattr(type(session._load), "interrupted", fails)
    session.interrupted((session.next_model("generate", ()),))
    assert "a follower failed (ZeroDivisionError): not told that the invocation interrupted" in session.steps[-1].note


def test_a_load_monitor_that_fails_hides_no_plan(planner):
    """What telemetry shows of a model's call is its plan, and the reads of a step need it."""

    class Monitor(InFlightLoadMonitor):
        def dispatched(self, engine):
            raise ZeroDivisionError

    session, other = (Session(planner, OBJECTIVE, clock=VirtualClock(), load=load()) for load in (Monitor, InFlightLoadMonitor))
    model = session.next_model("generate", ())
    shown = session.last_step()
    assert (shown["kind"], shown["model"]) == ("model", model)
    assert "decision" in shown
    assert "a follower failed (ZeroDivisionError)" in session.trace()[-1]["note"]
    assert other.next_model("generate", ()) == model
    assert session.comes_next((model,), ["repair"]) == other.comes_next((model,), ["repair"])
