"""Sessions on a trie that branches: the prefix holds models only, so the session remembers which stages ran."""

import pytest
from kit.tries import SPECIALISTS, routed

from vinelm.clock import VirtualClock
from vinelm.controller import Planner, Session
from vinelm.errors import ConfigError, TemplateError
from vinelm.objective import Objective
from vinelm.policies import StaticPolicy
from vinelm.requests.protocols import Invocation
from vinelm.rows.observation import Usage

BEST = Objective(maximize="accuracy")


@pytest.fixture(scope="module")
def planner():
    return Planner(routed())


def session_of(planner, objective=BEST, **settings):
    clock = VirtualClock(0.0)
    return Session(planner, objective, clock=clock, **settings), clock


def ran(stage, prefix, *, cost_usd=0.125, failure=None):
    usage = Usage(model=prefix[-1], cost_usd=cost_usd, latency_s=1.0)
    return Invocation(stage=stage, prefix=prefix, latency_s=1.0, usages=(usage,), failure=failure)


def test_the_arm_that_comes_decides_the_model(planner):
    for stage, model in (("billing", "m1"), ("technical", "m0")):
        session, _ = session_of(planner)
        assert session.next_model("router", ()) == "m1"
        session.record(ran("router", ("m1",)))
        assert session.should_continue(("m1",), False, {}, arms={stage})
        assert session.next_model(stage, ("m1",)) == model
        assert session.next_model(stage, ("m1",)) == model
        assert session.steps[-1].stage == stage


def test_the_node_is_found_by_the_stages_that_ran(planner):
    session, _ = session_of(planner)
    session.next_model("router", ())
    session.record(ran("router", ("m1",)))
    session.next_model("technical", ("m1",))
    session.record(ran("technical", ("m1", "m0")))
    assert session.should_continue(("m1", "m0"), False, {}, arms={"review"})
    assert session.next_model("review", ("m1", "m0")) == "m1"
    steps = ["router", "technical", "review"]
    assert session.steps[-1].decision.node == planner.trie.node(("m1", "m0"), steps[:2])
    session.record(ran("review", ("m1", "m0", "m1")))
    assert not session.should_continue(("m1", "m0", "m1"), False, {})
    assert session.steps[-1].note == "the last planned invocation"


def test_a_request_that_another_process_began_goes_on(planner):
    session, _ = session_of(planner)
    session.resumed(("m1", "m0"), (None, 0.25), stages=("router", "technical"))
    assert session.next_model("review", ("m1", "m0")) == "m1"
    assert session.steps[-1].spent_usd == 1.25
    unknown, _ = session_of(planner)
    unknown.resumed(("m1", "m0"), (None, 0.25))
    assert unknown.next_model("review", ("m1", "m0")) == "m0"
    assert "not planned for: default model" in unknown.steps[-1].note


def test_the_other_arm_after_the_same_prefix(planner):
    """An application that goes back (time travel) and takes another arm gets that arm's model."""
    session, _ = session_of(planner)
    session.next_model("router", ())
    session.record(ran("router", ("m1",)))
    assert session.next_model("billing", ("m1",)) == "m1"
    assert session.next_model("technical", ("m1",)) == "m0"
    session.record(ran("technical", ("m1", "m0")))
    session.next_model("review", ("m1", "m0"))
    assert planner.trie.stages[planner.trie.stage[session.steps[-1].decision.node]] == "technical"


def test_an_arm_that_the_template_lacks_runs_the_default_and_the_trace_says_so(planner):
    session, _ = session_of(planner)
    session.record(ran("router", ("m1",)))
    assert session.should_continue(("m1",), False, {}, arms={"review"})
    assert session.next_model("review", ("m1",)) == "m0"
    assert session.steps[-1].note == "the template has no arm 'review' after m1, it is not planned for: default model"
    assert session.trace()[-1]["note"] == session.steps[-1].note
    session.record(ran("review", ("m1", "m0")))
    assert not session.should_continue(("m1", "m0"), False, {})


def test_an_answer_in_hand_is_not_improved_past_the_deadline(planner):
    session, clock = session_of(planner, Objective(maximize="accuracy", max_latency_s=5.0))
    session.next_model("router", ())
    session.record(ran("router", ("m0",)))
    session.next_model("technical", ("m0",))
    clock.sleep(4.5)
    session.record(ran("technical", ("m0", "m0")))
    assert not session.should_continue(("m0", "m0"), False, {}, arms={"review"})
    assert not session.should_continue(("m0", "m0"), False, {})


def test_it_plans_around_a_failure_in_each_arm(planner):
    session, _ = session_of(planner, fallback=True)
    session.next_model("router", ())
    session.record(ran("router", ("m1",)))
    assert session.next_model("billing", ("m1",)) == "m1"
    failed = ran("billing", ("m1", "m1"), failure="server")
    assert session.fallback_model(failed, {"m1"}) == "m0"
    assert "left out after a failure" in session.steps[-1].note or session.steps[-1].decision is not None
    session.record(failed)
    assert session.next_model("billing", ("m1",)) == "m0"


def test_a_cap_for_each_request_is_kept_in_each_arm(planner):
    objective = Objective(maximize="accuracy", max_cost_usd=1.3, cost_budget="per_request")
    session, _ = session_of(planner, objective, least_call_usd=lambda model: {"m0": 0.1, "m1": 0.9}[model])
    assert session.next_model("router", ()) == "m0"
    session.record(ran("router", ("m0",), cost_usd=0.5))
    assert session.next_model("billing", ("m0",)) == "m0"


def test_explanations_and_traces_are_text_and_json(planner):
    session, _ = session_of(planner)
    session.next_model("router", ())
    session.record(ran("router", ("m1",)))
    session.should_continue(("m1",), False, {})
    assert session.steps[-1].stage == "billing or technical"
    assert "75% billing: m1" in session.explain()
    assert session.last_step()["decision"]["contingent_plan"]["steps"][0]["stage"] == "billing"


def test_a_static_plan_may_name_a_model_for_each_stage():
    policy = StaticPolicy(SPECIALISTS, models={"router": "m1", "technical": "m0"})
    assert [policy.next_model(stage, ("m1",)) for stage in ("technical", "billing")] == ["m0", "m0"]
    assert policy.should_continue(("m1", "m0"), False, {})
    assert policy.trace() == [{"kind": "static", "plan": {"router": "m1", "technical": "m0"}}]
    assert not StaticPolicy(SPECIALISTS, models={"router": "m1"}, length=2).should_continue(("m1", "m0"), False, {})
    with pytest.raises(TemplateError, match="no stage 'sales'"):
        StaticPolicy(SPECIALISTS, models={"sales": "m1"})
    with pytest.raises(ConfigError, match="a path or a model for each stage"):
        StaticPolicy(SPECIALISTS, ("m1",), models={"router": "m1"})
