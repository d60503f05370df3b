"""The bundled workflow, profiled whole and served by what requests show: each request takes the way that its rows say."""

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import TypedDict

import numpy as np
import pytest
from langgraph.graph import END, START, StateGraph

import vinelm
from vinelm import ExecutionConfig, Objective, ObservationStore, VineLM
from vinelm.api.profiling import load_inputs
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.requests.protocols import RequestPath
from vinelm.signals import Outcome
from vinelm.template import Loop, Stage, Template
from vinelm.vinefile import load_trie, save_trie

BEST = Objective(maximize="accuracy", max_cost_usd=0.002)
DEAR = Objective(maximize="accuracy", max_cost_usd=0.01)


class EveryPath:
    """Buys every path of every request, below passed checks too."""

    def __init__(self, ids, models, template):
        paths = list(product(models, repeat=template.depth))
        self.paths = [RequestPath(name, path, goes_on=template.is_linear) for name in ids for path in paths]

    def propose(self, round_, observations):
        return [] if round_ else self.paths


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The inputs, all rows by request and prefix, and the trie."""
    return profiled("nl2sql", tmp_path_factory.mktemp("whole") / "s.db", 12)


@pytest.fixture(scope="module")
def branching(tmp_path_factory):
    """The same of an application that branches, whose router and searches write no answer."""
    return profiled("support", tmp_path_factory.mktemp("branching") / "s.db", 14)


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    """The same of a loop that merges histories: what a request shows is a history of its own."""
    loop = Template((Stage("generate"), Loop((Stage("repair"),), 2, memory=1)), stop="workflow")
    return profiled("nl2sql", tmp_path_factory.mktemp("merged") / "s.db", 12, loop)


def profiled(name, path, limit, template=None):
    inputs = load_inputs(name, preset="paper-2", limit=limit, stop="workflow", seed=1)
    if template is not None:
        inputs = replace(inputs, workflow=replace(inputs.workflow, template=template))
    workflow, catalog, backends = inputs.workflow, inputs.catalog, inputs.backends
    sampler = EveryPath([request.id for request in workflow.requests], tuple(catalog), workflow.template)
    with ObservationStore.create(path, store_identity(workflow, catalog, backends)) as store:
        profile(
            workflow, catalog, backends, store, ProfileSettings(sampler=sampler, execution=ExecutionConfig(isolation="inline"))
        )
        rows = {(row.request_id, row.prefix): row for row in store.observations()}
    return inputs, rows, vinelm.estimate(path, check=False)


def vine_of(inputs, trie, **changes):
    workflow = inputs.workflow
    return VineLM(inputs.catalog, inputs.backends, trie=trie, **{"signals": workflow.signals} | changes)


def replayed(planner, objective, rows, request):
    """The models, the place of the answer returned (from 0), and whether it is right, by the table of all rows."""
    trie, outcomes, template = planner.trie, planner.annotated.outcomes, planner.annotated.template
    numbers = {} if template.is_linear else {stage.name: number for number, stage in enumerate(template.stages)}
    node, arm, prefix, firsts, held = 0, None, (), [], []
    while True:
        decision = planner.plan(objective, node=node, stage=arm, may_stop=node > 0, elapsed_s=0.0)
        if decision.next_model is None:
            break
        node, prefix = trie.child(node, decision.next_model, arm), (*prefix, decision.next_model)
        row = rows[request.id, prefix]
        kind = row.answer_class if planner.annotated.writes_answer(node) else None
        if kind is not None and kind not in firsts:
            firsts.append(kind)
        held.append(None if kind is None else firsts.index(kind))
        seen = outcomes.seen(node, Outcome(row.signal, held[-1]), passed=bool(row.stopped), stage=numbers.get(row.arm))
        returned = outcomes.returned_class(seen.place)
        if seen.place < 0 or outcomes.arm[seen.place] < 0:
            break
        arm = trie.stages[int(outcomes.arm[seen.place])]
    place = len(held) - 1 if returned is None or returned not in held else held.index(returned)
    return prefix, place, rows[request.id, prefix[: place + 1]].success


@pytest.mark.parametrize("profile_of", ["whole", pytest.param("merged", marks=pytest.mark.long)])
def test_a_served_request_takes_the_way_that_its_rows_say(profile_of, request):
    inputs, rows, trie = request.getfixturevalue(profile_of)
    assert trie.trie.is_merged is (profile_of == "merged")
    workflow = inputs.workflow
    vine = vine_of(inputs, trie)
    app = workflow.build(vine).compile()
    planner, happened = vine.served_planner(), Counter()
    assert planner.annotated.outcomes.returns_earlier
    for objective, asked in product((BEST, DEAR), workflow.requests):
        session = vine.session(objective, request=asked)
        state = app.invoke(workflow.graph_input(asked), context=vine.context(policy=session, request=asked))
        drawn = objective if session.assigned.bound is None else objective.drawn(session.assigned.bound)
        prefix, place, is_right = replayed(planner, drawn, rows, asked)
        assert session.invocations[-1].prefix == prefix
        assert bool(workflow.score(asked, state)) is is_right
        ways = [prefix[:k] for k in range(1, len(prefix) + 1)]
        assert session.spent_usd == pytest.approx(sum(rows[asked.id, way].cost_usd for way in ways))
        assert any("returned answer" in step.note for step in session.steps) is (place < len(prefix) - 1)
        happened["went on below a passed check"] += any(rows[asked.id, way].stopped for way in ways[:-1])
        happened["returned an earlier answer"] += place < len(prefix) - 1
        happened["ended"] += len(prefix) < 3
    assert happened["went on below a passed check"] > 2
    assert happened["ended"] > 2


@pytest.mark.parametrize("profile_of", ["branching", "merged"])
def test_a_file_gives_it_back(profile_of, request, tmp_path):
    trie = request.getfixturevalue(profile_of)[2]
    save_trie(tmp_path / "a.vine", trie)
    found = load_trie(tmp_path / "a.vine")
    assert type(found.trie) is type(trie.trie)
    for name in ("success", "arm", "arm_success", "cost_usd"):
        assert np.array_equal(getattr(found.signals, name), getattr(trie.signals, name))
    assert found.signals.outcomes.labels == trie.signals.outcomes.labels


def test_an_application_that_branches_is_served_by_what_its_stages_show(branching):
    """Both objectives, every request: the models are those that the rows and the plan say, stage by stage."""
    inputs, rows, trie = branching
    workflow, happened = inputs.workflow, Counter()
    vine = vine_of(inputs, trie)
    app = workflow.build(vine).compile()
    planner = vine.served_planner()
    assert planner.annotated.policy == "signals"
    assert not planner.annotated.template.is_linear
    for objective, request in product((BEST, DEAR), workflow.requests):
        session = vine.session(objective, request=request)
        state = app.invoke(workflow.graph_input(request), context=vine.context(policy=session, request=request))
        drawn = objective if session.assigned.bound is None else objective.drawn(session.assigned.bound)
        prefix, _, is_right = replayed(planner, drawn, rows, request)
        assert session.invocations[-1].prefix == prefix
        assert bool(workflow.score(request, state)) is is_right
        assert not any("default model" in step.note for step in session.steps)
        happened[len(prefix)] += 1
        happened["exact"] += not any("never saw" in step.note for step in session.steps)
    assert len([key for key in happened if isinstance(key, int)]) > 1, "requests of several lengths"
    assert happened["exact"] > 20


def test_streamed_tokens_cannot_be_taken_back(whole):
    """Such a request is planned as one that returns its last answer."""
    inputs, _, trie = whole
    workflow, plans = inputs.workflow, []
    vine = vine_of(inputs, trie)
    app = workflow.build(vine).compile()
    made = vine.session
    vine.session = lambda *args, **settings: plans.append(made(*args, **settings)) or plans[-1]
    request = workflow.requests[0]
    for settings in ({}, {"stream_mode": "messages"}):
        list(app.stream(workflow.graph_input(request), context=vine.context(BEST, request=request), **settings))
    assert [session.planner.annotated.outcomes.returns_earlier for session in plans] == [True, False]


class State(TypedDict, total=False):
    sql: str


def build_without_finish(vine):
    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", lambda state, model: {}, state=State))
    graph.add_node("repair", vine.stage("repair", lambda state, model: {}, state=State))
    graph.add_edge(START, "generate")
    for name in ("generate", "repair"):
        graph.add_conditional_edges(name, vine.route(lambda state: False, again="repair", end=END), ["repair", END])
    return graph


def test_plans_are_those_of_the_last_answer_without_a_finish_node(whole):
    inputs, _, trie = whole
    vine = vine_of(inputs, trie)
    build_without_finish(vine)
    assert not vine.served_planner().annotated.outcomes.returns_earlier
    assert vine.served_planner(returns_earlier=True).annotated.outcomes.returns_earlier
    assert vine.session(BEST).planner is vine.served_planner()


def test_plans_are_paths_where_nothing_is_declared_or_known(whole):
    inputs, _, trie = whole
    for vine in (vine_of(inputs, trie, signals=None), vine_of(inputs, replace(trie, signals=None))):
        inputs.workflow.build(vine)
        assert vine.served_planner() is vine.planner
        assert vine.planner.annotated.policy == "paths"
