"""Sessions over tries that branch: a plan per arm, served through real graphs."""

import random

import numpy as np
import pytest
from kit.apps.branching import CORRECTIVE, EXPERTS, ROUTER, SUPERVISOR, corrective, experts, router, supervisor
from kit.apps.echo import MODES, EchoBackend, path_of, run, thread
from kit.catalogs import make_catalog
from kit.oracles.branching_cases import annotated_at_random
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END

from vinelm import AnnotatedTrie, Objective, VineLM
from vinelm.adapters.langgraph.path.path_channel import PATH_KEY
from vinelm.template import Branch, Stage, Template
from vinelm.trie import Trie

OBJECTIVE = Objective(maximize="accuracy", max_cost_usd=1e3, max_latency_s=1e6)


def served(template, seed=0, n_models=2):
    """A VineLM over a random trie of that template."""
    catalog = make_catalog(n_models)
    template = template.bind(tuple(catalog))
    bare = Trie.from_template(template)
    trie = (
        chain(bare, template, catalog) if bare.is_linear else annotated_at_random(random.Random(seed), bare, template, catalog)
    )
    return VineLM(catalog, {"test": EchoBackend()}, trie=trie, labelled=True, mode="enforce", on_error="raise")


def chain(trie, template, catalog):
    """Later answers are better; every call costs a cent."""
    zeros, below = np.zeros(len(trie)), trie.depth > 0
    success = np.where(below, 0.1 + 0.05 * trie.depth + 0.01 * trie.model, 0.0)
    cost = np.where(below, 0.01, 0.0)
    return AnnotatedTrie(trie, template, catalog, success, zeros, zeros, cost, zeros, cost, zeros)


def planned(planner, stages):
    """The models that the plan gives to the invocations of a request with these stages."""
    node, models = 0, []
    for stage in stages:
        arm = {} if planner.trie.is_linear else {"stage": stage}
        model = planner.plan(OBJECTIVE, node=node, may_stop=False, **arm).next_model
        models.append(model)
        node = planner.trie.child(node, model, stage)
    return models


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("template", "build", "plan", "stages"),
    [
        (ROUTER, router, ["search"], ["router", "search", "grade", "write"]),
        (ROUTER, router, ["chat"], ["router", "write"]),
        (SUPERVISOR, supervisor, ["tax", "law", END], ["supervisor", "tax", "supervisor", "law", "supervisor"]),
        (EXPERTS, experts, [], ["law", "tax", "judge"]),
    ],
    ids=["search", "chat", "supervisor", "experts"],
)
def test_each_arm_runs_the_models_of_its_plan(template, build, plan, stages, mode, seed):
    vine = served(template, seed)
    app = build(vine, mode).compile(checkpointer=InMemorySaver())
    session = vine.session(OBJECTIVE)
    run(app, mode, {"plan": plan}, thread(), context=vine.context(policy=session))
    entries = app.get_state(thread()).values[PATH_KEY]["path"]
    assert [entry["stage"] for entry in entries] == stages
    assert path_of(app, thread()) == planned(session.planner, stages)
    assert not [step for step in session.trace() if step["kind"] == "failed"]


@pytest.mark.parametrize("mode", MODES)
def test_an_arm_that_the_trie_lacks_runs_its_default_and_the_trace_says_so(mode):
    steps = (Stage("router", answerable=False), Branch({"search": (Stage("search"),), "chat": (), "end": END}), Stage("write"))
    vine = served(Template(steps))
    app = router_of(vine, mode)
    session = vine.session(OBJECTIVE)
    out = run(app, mode, {"plan": ["search"]}, context=vine.context(policy=session))
    assert [name for name in out["log"] if not name.startswith("m")] == ["router", "search", "grade", "write"]
    assert "the template has no arm" in str(session.trace())


def router_of(vine, mode):
    vine.adapter.declare("grade")
    return router(vine, mode).compile()


@pytest.mark.parametrize("mode", MODES)
def test_an_edge_of_several_destinations_ends_where_the_plan_does(mode):
    """Each call costs a cent: the second turn would not fit the cap."""
    vine = served(CORRECTIVE, 1)
    app = corrective(vine, mode).compile()
    session = vine.session(Objective(maximize="accuracy", max_cost_usd=0.025, cost_budget="per_request"))
    out = run(app, mode, {"plan": ["rewrite"] * 9}, context=vine.context(policy=session))
    assert out["log"].count("generate") == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_request_that_is_resumed_goes_on_with_its_plan(mode):
    vine, saver = served(ROUTER), InMemorySaver()
    app = router(vine, mode).compile(checkpointer=saver, interrupt_before=["grade"])
    run(app, mode, {"plan": ["search"]}, thread(), context=vine.context(OBJECTIVE))
    again = router(vine, mode).compile(checkpointer=saver)
    session = vine.session(OBJECTIVE)
    run(again, mode, None, thread(), context=vine.context(policy=session))
    assert path_of(again, thread()) == planned(session.planner, ["router", "search", "grade", "write"])


@pytest.mark.parametrize("mode", MODES)
def test_stages_side_by_side_are_paid_for_once(mode):
    """The second is planned while the first is under way; an expected price stands in until its own is known."""
    vine = served(EXPERTS)
    session = vine.session(Objective(maximize="accuracy", max_cost_usd=1.0, cost_budget="per_request"))
    run(experts(vine, mode).compile(), mode, {}, context=vine.context(policy=session))
    assert session.spent_usd == pytest.approx(0.03)
    assert session.trace()[-1]["spent_usd"] == pytest.approx(0.02)  # before the judge
