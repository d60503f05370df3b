"""A plan is served only where it is proven against what runs today, and ends only where the application can."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from kit.apps.echo import EchoBackend, Typed
from kit.catalogs import make_catalog
from langgraph.graph import END, START, StateGraph

import vinelm
from vinelm import VineLM
from vinelm.adapters.langgraph import build_graph
from vinelm.api.estimation import estimate_store
from vinelm.api.profiling import Inputs, bind_workflow, identity_of, run_profile
from vinelm.errors import CallError, ConfigError, InfeasibleError
from vinelm.objective import Objective
from vinelm.profiler import ProfileSettings
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.traces import ObservationStore
from vinelm.trie.annotated_trie import within_exits
from vinelm.trie.verdict import ComparedPlan, Verdict

TWICE = Template((Stage("write"), Loop((Stage("fix"),), times=2)))
BEST = Objective(maximize="accuracy")


def ask(state: Typed, model):
    return {"a": state.get("a", "") + model.invoke("?").text + ";"}


def graph(vine, default="m1", routed=False):
    built = StateGraph(Typed)
    built.add_node("write", vine.stage("write", ask, default=default))
    built.add_node("fix", vine.stage("fix", ask, default=default))
    built.add_edge(START, "write")
    for name in ("write", "fix"):
        own = lambda state: END if len(state["a"]) > 6 else "fix"  # noqa: E731
        edge = vine.route(lambda state: len(state["a"]) > 6, again="fix", end=END) if routed else own
        built.add_conditional_edges(name, edge, None if routed else {"fix": "fix", END: END})
    return built


def workflow(**settings):
    requests = tuple(Request(f"q{i}", {"q": str(i)}) for i in range(24))
    return Workflow(
        name="w", template=TWICE, build=lambda vine: graph(vine, **settings), requests=requests,
        score=lambda request, state: "m2" in state.get("a", ""),
    )  # fmt: skip


def profiled(path, **settings):
    models, backends = make_catalog(3), {"test": EchoBackend()}
    bound = bind_workflow(workflow(**settings), models, backends)
    with ObservationStore.create(path, identity_of(bound, models, backends, 0)) as store:
        run_profile(Inputs(workflow=bound, catalog=models, backends=backends), store, ProfileSettings(coverage=1.0))
    return estimate_store(path, estimator="latent")


def control(annotated, **settings):
    vine = VineLM(make_catalog(3), {"test": EchoBackend()}, trie=annotated, **settings)
    return vine, build_graph(workflow(routed=settings.pop("routed", False)), vine)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("gate") / "a.db"
    profiled(path)
    return path


@pytest.fixture(scope="module")
def trie(store):
    return estimate_store(store, estimator="latent")


# -- exits are a property of the file ------------------------------------------------------------------------------


def test_today_and_the_exits_are_read_off_the_wrapped_graph(trie):
    annotated = trie
    assert annotated.template.today == {"write": "m1", "fix": "m1"}
    assert annotated.template.exits == ()  # no vine.route: only the application ends a request
    ends = annotated.trie.answerable
    assert (annotated.trie.depth[ends] == annotated.trie.max_depth).all()
    bound = bind_workflow(workflow(routed=True), make_catalog(3), {"test": EchoBackend()})
    assert bound.template.exits is None  # it can end wherever there is an answer


def test_the_exits_of_an_application_that_wraps_itself_are_found_behind_its_graph():
    """What `init --apply` leaves: the app has a VineLM of its own, and `build` returns the graph that this wrapped."""
    own = VineLM(make_catalog(3), {"test": EchoBackend()})
    for routed, exits in ((False, ()), (True, None)):
        built = graph(own, routed=routed).compile()
        bound = bind_workflow(replace(workflow(), build=lambda vine, app=built: app), make_catalog(3), {"test": EchoBackend()})
        assert bound.template.exits == exits
        assert bound.template.today == {"write": "m1", "fix": "m1"}
        own = VineLM(make_catalog(3), {"test": EchoBackend()})


def test_and_where_a_cached_function_makes_the_chat_model_when_a_node_runs():
    """As services do that choose the model by the request: nothing of VineLM but itself is in the graph before it runs."""
    own = VineLM(make_catalog(3), {"test": EchoBackend()})

    @cache
    def model_of(name):
        return own.chat_model()

    async def write(state):
        return {"a": (await model_of("best").ainvoke(state["q"])).text}

    drawn = StateGraph(Typed)
    drawn.add_node("write", write)
    drawn.add_edge(START, "write")
    drawn.add_conditional_edges(
        "write", lambda state: "again" if state["a"] == "?" else "done", {"again": "write", "done": END}
    )
    app = drawn.compile()
    template = Template((Loop((Stage("write"),), times=3),))
    found = replace(workflow(), template=template, build=lambda vine: app)
    assert bind_workflow(found, make_catalog(3), {"test": EchoBackend()}).template.exits == ()


def test_the_same_holds_for_chat_models_and_functions():
    own = VineLM(make_catalog(3), {"test": EchoBackend()})
    model = own.chat_model("write", default="m1")

    def run(inputs):
        return {"a": model.invoke(inputs["q"]).text}

    template = Template((Loop((Stage("write"),), times=3),))
    bound = bind_workflow(
        replace(workflow(), build=lambda vine: run, template=template), make_catalog(3), {"test": EchoBackend()}
    )
    assert bound.template.exits == ()
    assert bound.template.today == {"write": "m1"}


@pytest.mark.parametrize("objective", [BEST, Objective(minimize="cost"), Objective(maximize="accuracy", max_cost_usd=0.02)])
def test_plan_and_service_say_the_same_of_one_file(tmp_path, trie, objective):
    vinelm.save_trie(tmp_path / "a.vine", trie)
    promised = vinelm.plan(tmp_path / "a.vine", objective)
    vine, _ = control(vinelm.load_trie(tmp_path / "a.vine"), allow_unproven=True)
    served = vine.served_planner().plan(objective)
    assert served.path == promised.path
    assert served.accuracy == pytest.approx(promised.accuracy)
    assert served.path_cost_usd == pytest.approx(promised.path_cost_usd)


def test_exits_survive_the_file(trie):
    assert Template.from_dict(json.loads(json.dumps(trie.template.to_dict()))) == trie.template
    assert within_exits(trie).trie == trie.trie


def test_a_template_that_says_nothing_of_exits_is_stored_as_before():
    assert "exits" not in TWICE.to_dict()


def test_a_branch_keeps_the_models_of_its_stages():
    routed = Template((Stage("r"), Branch({"a": (Stage("x"),), "b": (Stage("y"),)}))).bind(("m", "n"))
    assert routed.with_defaults({"r": "m", "x": "n", "y": "other"}).today is None  # a model that y does not allow says nothing
    assert routed.with_defaults({"r": "m", "x": "n", "y": "n"}).today == {"r": "m", "x": "n", "y": "n"}


# -- the gate in service -------------------------------------------------------------------------------------------


def compared(annotated, gain, reach=0.001):
    cost = annotated.path_cost_usd[annotated.trie.answerable]
    plans = [
        ComparedPlan(
            policy="paths", cost_usd=float(usd), gain=gain, gain_low=gain - reach, gain_high=gain + reach,
            best_low=gain - reach, best_high=gain + reach, saved_usd=0.01,
            saved_low=0.009, saved_high=0.011, is_same=False, is_identified=True,
        ) for usd in (cost.min(), cost.max())
    ]  # fmt: skip
    found = Verdict(
        models=annotated.template.today, accuracy=0.5, cost_usd=0.03, requests=24, spent_usd=1.0, plans=plans, max_loss=0.01
    )
    return replace(annotated, verdict=found)


def test_a_proven_plan_is_served(trie):
    vine, app = control(compared(trie, 0.1))
    assert vine.recommendation(BEST).advice == "switch"
    assert "m2" in app.invoke({"q": "?"}, context=vine.context(BEST))["a"]


@pytest.mark.parametrize("gain", [-0.1, 0.0])
def test_what_is_not_proven_runs_today_and_the_trace_says_so(trie, gain, caplog):
    vine, app = control(compared(trie, gain, reach=0.05))
    session = vine.session(BEST)
    assert app.invoke({"q": "?"}, context=vine.context(BEST, policy=session))["a"] == "m1;m1;m1;"
    assert "not proven: would have run" in session.trace()[0]["note"]
    vine.session(BEST)
    assert sum("not served: " in record.getMessage() for record in caplog.records) == 1  # said once


def test_a_plan_that_is_proven_for_a_share_of_the_requests_serves_that_share(trie):
    annotated = compared(trie, 0.0, reach=0.0125)
    vine, app = control(annotated)
    assert (vine.recommendation(BEST).advice, vine.recommendation(BEST).share) == ("switch", 0.8)
    names = [f"r{i}" for i in range(1000)]
    followed = [vine.session(BEST, run_id=name).follows for name in names]
    assert np.mean(followed) == pytest.approx(0.8, abs=0.04)
    another, _ = control(annotated)  # as another process, or after a restart
    assert [another.session(BEST, run_id=name).follows for name in names] == followed
    threads = [{"thread_id": f"t{i % 7}"} for i in range(70)]  # a conversation is served by one of the two
    of_threads = [vine.session(BEST, configurable=one).follows for one in threads]
    assert of_threads == 10 * of_threads[:7]
    for name, follows in zip(names[:40], followed, strict=False):
        answer = app.invoke({"q": "?"}, context=vine.context(BEST, policy=vine.session(BEST, run_id=name)))["a"]
        assert ("m2" in answer) == follows
    assert all(control(annotated, allow_unproven=True)[0].session(BEST, run_id=name).follows for name in names[:20])


def test_it_can_be_served_all_the_same(trie):
    vine, app = control(compared(trie, -0.1), allow_unproven=True)
    assert "m2" in app.invoke({"q": "?"}, context=vine.context(BEST))["a"]


def test_the_allowed_loss_is_the_owners(trie):
    annotated = compared(trie, 0.0, reach=0.03)
    assert control(annotated)[0].recommendation(BEST).advice == "undecided"
    assert control(annotated, max_loss=0.04)[0].recommendation(BEST).advice == "switch"
    with pytest.raises(ConfigError, match="max_loss is 2"):
        control(annotated, max_loss=2)


def test_another_trie_is_judged_anew(trie):
    vine, _ = control(compared(trie, -0.1))
    assert vine.recommendation(BEST).advice == "keep"
    vine.load(compared(trie, 0.1))
    assert vine.recommendation(BEST).advice == "switch"


def test_a_cap_per_request_holds_though_the_plan_is_not_followed(trie):
    vine, _ = control(compared(trie, -0.1))
    capped = Objective(maximize="accuracy", max_cost_usd=0.02, cost_budget="per_request")
    assert vine.session(capped).guard is not None


def test_bounds_that_today_s_models_break_fail_no_request(trie):
    dear = replace(trie, cost_usd=np.where(trie.trie.model == 1, 4.0, 1.0) * trie.cost_usd)
    vine, app = control(compared(dear, -0.1))
    cheapest = 1.001 * vine.served_planner().plan(Objective(minimize="cost")).path_cost_usd
    bounded = Objective(maximize="accuracy", max_cost_usd=cheapest, on_infeasible="raise")
    for _ in range(30):  # what today's models spend above the bound tightens no later request's
        session = vine.session(bounded)
        assert app.invoke({"q": "?"}, context=vine.context(bounded, policy=session))["a"] == "m1;m1;m1;"
    with pytest.raises(InfeasibleError):
        app.invoke({"q": "?"}, context=vine.context(replace(bounded, max_cost_usd=0.5 * cheapest)))


def test_a_file_without_a_verdict_is_served_as_it_plans(trie):
    vine, app = control(replace(trie, verdict=None))
    assert vine.recommendation(BEST) is None
    assert "m2" in app.invoke({"q": "?"}, context=vine.context(BEST))["a"]


def within_tried(trie, *models):
    """The trie whose tried steps are those of some models."""
    known = [trie.trie.models.index(name) for name in models]
    return replace(trie, tried=np.isin(trie.trie.model[trie.trie.target], known))


def test_what_is_not_proven_runs_today_also_where_its_steps_were_tried_too_little(trie):
    vine, app = control(compared(within_tried(trie, "m2"), -0.1))
    for objective in (BEST, replace(BEST, on_infeasible="raise"), Objective(maximize="accuracy", max_cost_usd=1.0)):
        session = vine.session(objective)
        assert app.invoke({"q": "?"}, context=vine.context(objective, policy=session))["a"] == "m1;m1;m1;"
    vine, app = control(compared(within_tried(trie, "m2"), 0.1))
    assert app.invoke({"q": "?"}, context=vine.context(BEST))["a"] == "m2;m2;m2;"


def test_where_every_tried_model_fails_another_one_answers(trie):
    """A failure leads a request off the tried steps, and it goes on from there."""
    backend = EchoBackend(fail={"m2": CallError("gone", kind="server")})
    vine = VineLM(make_catalog(3), {"test": backend}, trie=compared(within_tried(trie, "m2"), 0.1))
    state = build_graph(workflow(), vine).invoke({"q": "?"}, context=vine.context(BEST))
    assert state["a"].count(";") == 3
    assert "m2" not in state["a"]


# -- what a profile shows of it ------------------------------------------------------------------------------------


def test_an_estimate_holds_the_comparison_with_today(store):
    found = vinelm.estimate(store, max_error=1.0).verdict
    assert found.models == {"write": "m1", "fix": "m1"}
    assert found.accuracy == pytest.approx(0.0)
    assert found.advice == "switch"
    assert found.plan.gain == pytest.approx(1.0)  # m2 is always right, m1 never
    assert vinelm.estimate(store, check=False).verdict is None
