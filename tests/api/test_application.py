import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TypedDict

import numpy as np
import pytest

from vinelm import VineLM
from vinelm.adapters.langgraph import build_graph
from vinelm.backends import create_backends
from vinelm.backends.offline.presets import simulated_catalog
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.policies import StaticPolicy
from vinelm.running.serving import judge_of, serve
from vinelm.template import Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.verdict import ComparedPlan, Verdict
from vinelm.vinefile import save_trie


class State(TypedDict):
    question: str


EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "my_app.py"


@pytest.fixture(scope="module")
def workflow():
    spec = spec_from_file_location("my_app_of_the_controller_tests", EXAMPLE)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module.workflow
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def catalog():
    everything = simulated_catalog()
    return everything.subset(tuple(everything)[:3])


def made_up(workflow, catalog, stop="workflow"):
    """A trie that prefers longer paths, and the last model of the catalog."""
    template = workflow.template.bind(tuple(catalog)).with_stop(stop)
    trie = Trie.from_template(template)
    size = len(trie)
    success = np.where(trie.depth > 0, 0.2 + 0.1 * trie.depth + 0.05 * trie.model, 0.0)
    stops = np.full(size, 0.1)
    latency = np.full(size, 1.0)
    latency[0] = stops[0] = 0.0
    zeros = np.zeros(size)
    right = success * stops
    return AnnotatedTrie(trie, template, catalog, success, stops, right, latency / 1000, zeros, latency, zeros)


def control(workflow, catalog, **settings):
    return VineLM(catalog, create_backends(catalog, workflow=workflow), **settings)


def served_by_plan(workflow, vine, app, request, objective):
    session = vine.session(objective, request=request, judge=judge_of(workflow, request), clock=vine.new_clock())
    return serve(workflow, vine, app, request, policy=session, objective=objective)


def test_a_served_request_follows_its_plan_on_virtual_time(workflow, catalog):
    vine = control(workflow, catalog)
    vine.load(made_up(workflow, catalog))
    app = build_graph(workflow, vine)
    last = tuple(catalog)[-1]
    for request in workflow.requests[:4]:
        served = served_by_plan(workflow, vine, app, request, Objective(maximize="accuracy"))
        assert set(served.prefix) == {last}
        assert served.failure is None
        assert served.latency_s > 0
        assert served.cost_usd > 0
        again = served_by_plan(workflow, vine, app, request, Objective(maximize="accuracy"))
        assert again == served
        capped = served_by_plan(workflow, vine, app, request, Objective(maximize="accuracy", max_latency_s=1.0))
        assert len(capped.prefix) == 1


def test_the_oracle_stop_scores_every_answer(workflow, catalog):
    vine = control(workflow, catalog, labelled=True)
    vine.load(made_up(workflow, catalog, stop="oracle"))
    app = build_graph(workflow, vine)
    lengths = set()
    for request in workflow.requests[:12]:
        served = served_by_plan(workflow, vine, app, request, Objective(maximize="accuracy"))
        lengths.add(len(served.prefix))
        assert served.success or len(served.prefix) == workflow.template.depth
    assert len(lengths) > 1
    with pytest.raises(ConfigError, match="judge"):
        vine.session(Objective(maximize="accuracy"))


def test_a_trie_that_stops_by_the_oracle_is_refused_at_load(workflow, catalog):
    """Not by each request: no served request knows the right answer."""
    with pytest.raises(ConfigError, match="stops by the oracle") as refused:
        control(workflow, catalog).load(made_up(workflow, catalog, stop="oracle"))
    assert refused.value.code == "oracle-trie"


def test_a_static_plan_is_served_by_the_same_hand(workflow, catalog):
    vine = control(workflow, catalog)
    app = build_graph(workflow, vine)
    template = workflow.template.bind(tuple(catalog))
    first, second = tuple(catalog)[:2]
    for request in workflow.requests[:4]:
        policy = StaticPolicy(
            template, (second, first), clock=vine.new_clock(), request=request, judge=judge_of(workflow, request)
        )
        served = serve(workflow, vine, app, request, policy=policy)
        assert served.prefix in {(second,), (second, first)}


def test_without_a_trie_or_an_objective_the_defaults_run(workflow, catalog):
    vine = control(workflow, catalog)
    app = build_graph(workflow, vine)
    request = workflow.requests[0]
    with pytest.raises(ConfigError, match=r"vine\.load"):
        vine.served_planner()
    state = app.invoke(workflow.graph_input(request), context=vine.context(Objective(maximize="accuracy"), request=request))
    assert "answer" in state


def test_a_session_without_a_trie_is_of_default_models(workflow, catalog):
    """It raised, so that an application could not be served before its first trie was there."""
    vine, request = control(workflow, catalog), workflow.requests[0]
    app, objective = build_graph(workflow, vine), Objective(maximize="accuracy")
    session = vine.session(objective, request=request, clock=vine.new_clock())
    given = workflow.graph_input(request)
    state = app.invoke(given, context=vine.context(policy=session, request=request))
    assert state == app.invoke(given, context=vine.context(objective, request=request))
    default = vine.default_model(session.invocations[0].stage)
    assert {one.prefix[-1] for one in session.invocations} == {default}
    assert session.spent_usd > 0.0
    assert session.elapsed_s() > 0.0
    assert f"{session.invocations[0].stage}: {default}" in session.explain()
    assert (session.decisions, session.trace(), session.last_step()) == ([], [], {})


def test_a_failed_call_is_a_failure_and_not_a_wrong_answer(workflow, catalog):
    backends = create_backends(catalog, workflow=workflow)
    for backend in backends.values():
        backend._failure_rate = 1.0
    vine = VineLM(catalog, backends)
    vine.load(made_up(workflow, catalog))
    served = served_by_plan(workflow, vine, build_graph(workflow, vine), workflow.requests[0], Objective(maximize="accuracy"))
    assert served.failure in {"rate_limit", "server", "timeout"}
    assert not served.success


def test_trie_and_catalog_must_fit(workflow, catalog, tmp_path):
    annotated = made_up(workflow, catalog)
    save_trie(tmp_path / "app.vine", annotated)
    assert VineLM(trie=tmp_path / "app.vine").planner.trie == annotated.trie
    with pytest.raises(ConfigError, match="VineLM needs models"):
        VineLM()
    foreign = simulated_catalog().subset(tuple(simulated_catalog())[5:7])
    with pytest.raises(ConfigError, match="no path of the trie can be served"):
        VineLM(foreign, trie=annotated)
    with pytest.raises(ConfigError, match="another workflow"):
        VineLM(catalog, template=Template((Stage("other"),)), trie=annotated)
    vine = control(workflow, catalog)
    vine.stage("elsewhere", lambda state, model: {}, state=State)
    with pytest.raises(ConfigError, match="no stage 'elsewhere'"):
        vine.load(annotated)


def test_a_model_that_left_the_catalog_is_not_planned(workflow, catalog):
    two = catalog.subset(tuple(catalog)[:2])
    vine = VineLM(two, create_backends(two, workflow=workflow))
    vine.load(made_up(workflow, catalog))
    served = served_by_plan(workflow, vine, build_graph(workflow, vine), workflow.requests[0], Objective(maximize="accuracy"))
    assert set(served.prefix) == {tuple(catalog)[1]}


def test_what_plans_look_up_can_be_built_before_the_first_request(workflow, catalog):
    vine = control(workflow, catalog)
    with pytest.raises(ConfigError, match=r"vine\.load"):
        vine.prepare(Objective(maximize="accuracy"))
    vine.load(made_up(workflow, catalog))
    vine.prepare(Objective(maximize="accuracy", max_latency_s=9.0), Objective(minimize="cost", min_accuracy=0.5))
    assert vine.planner.index_ends > 0


def a_verdict(usd):
    """To switch to a plan of so many dollars, in place of one of a cent; what is a little cheaper and dearer as well."""
    plans = [
        ComparedPlan(
            policy="paths", cost_usd=cost, cap_usd=cost, gain=0.05, gain_low=0.02, gain_high=0.08, best_low=0.02,
            best_high=0.08, saved_usd=0.01 - cost, saved_low=0.005, saved_high=0.01, is_same=False, is_identified=True,
        )
        for cost in (usd, 1.2 * usd)
    ]  # fmt: skip
    return Verdict(cost_usd=0.01, plans=plans)


CORRECTED = {
    "by default": ({}, 0.00201, (0.00201 / 1.5 * 0.98, 0.0018)),
    "not if it is not to be": ({"correct_spend": False}, 0.00201, (0.00201, 0.00201)),
    "not of labelled requests": ({"labelled": True}, 0.00201, (0.00201, 0.00201)),
    "not of the plan that is proven": ({}, 0.002, (0.002, 0.002)),
}


@pytest.mark.parametrize("how", CORRECTED)
def test_a_bound_on_mean_dollars_is_corrected_but_not_that_of_the_proven_plan(workflow, catalog, how):
    """Requests cost 1.4 times as much as planned: later ones are planned under a smaller bound, unless it names a plan."""
    settings, bound, (low, high) = CORRECTED[how]
    annotated = replace(made_up(workflow, catalog), verdict=a_verdict(0.00199))
    vine = control(workflow, catalog, trie=annotated, allow_unproven=True, **settings)
    objective = Objective(maximize="accuracy", max_cost_usd=bound, mix=how != "not of the plan that is proven")
    for _ in range(150):
        session = vine.session(objective)
        drawn = session.objective if session.assigned.bound is None else session.objective.drawn(session.assigned.bound)
        planned = session.planner.plan(drawn).path_cost_usd
        if session._on_spent is not None:
            session._on_spent(1.4 * planned)
    assert low <= session.objective.max_cost_usd <= high


def test_a_bound_is_not_corrected_beyond_what_is_proven(workflow, catalog):
    """A little below the compared plans nothing is proven: there the bound stays as it was given."""
    annotated = replace(made_up(workflow, catalog), verdict=a_verdict(0.00199))
    vine = control(workflow, catalog, trie=annotated)
    objective = Objective(maximize="accuracy", max_cost_usd=0.00201)
    for _ in range(150):
        session = vine.session(objective)
        assert session.follows
        drawn = session.objective if session.assigned.bound is None else session.objective.drawn(session.assigned.bound)
        session._on_spent(1.4 * session.planner.plan(drawn).path_cost_usd)
    assert session.objective.max_cost_usd == 0.00201
