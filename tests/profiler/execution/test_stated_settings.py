"""Applications that need a context, ``configurable`` keys or a thread of their own are profiled with what is stated."""

import operator
from dataclasses import dataclass
from typing import Annotated, TypedDict

import pytest
from kit.toys.profiling import PROMPT, ToyBackend, catalog_for, new_store, toy
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from pydantic import BaseModel

from vinelm import VineLM
from vinelm.errors import WorkflowError
from vinelm.policies import DefaultPolicy
from vinelm.profiler import ExecutionConfig, ProfileSettings, profile
from vinelm.profiler.execution.replayed.runner import make_units
from vinelm.running.serving import serve


@dataclass(frozen=True)
class Data:
    tenant: str


class Checked(BaseModel):
    tenant: str


class Typed(TypedDict):
    tenant: str


class State(TypedDict, total=False):
    question: str
    answer: str
    seen: Annotated[list[str], operator.add]


def app_of(vine, schema, checkpointer=None):
    """Answers, and notes what it was run with; asks again until the answer passes."""

    def note(state: State, config, runtime: Runtime):
        context, asked = runtime.context, config["configurable"]
        tenant = context["tenant"] if isinstance(context, dict) else context.tenant
        return [f"{tenant} {asked['user']} {asked['thread_id']}"]

    def stage(state: State, model, config, runtime):
        return {"answer": model.invoke(PROMPT.format(question=state["question"])).text, "seen": note(state, config, runtime)}

    def check(state: State, config, runtime: Runtime[schema]):
        return {"seen": note(state, config, runtime)}

    graph = StateGraph(State, context_schema=schema)
    graph.add_node("generate", vine.stage("generate", stage))
    graph.add_node("repair", vine.stage("repair", stage))
    graph.add_node("check", check)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "check")
    graph.add_edge("repair", "check")
    passed = vine.route(lambda state: state["answer"] in ("right", "plausible"), again="repair", end=END)
    graph.add_conditional_edges("check", passed, ["repair", END])
    return graph.compile(checkpointer=checkpointer)


def workflow_of(schema=Data, seen=None, checkpointer=None, **changes):
    def score(request, state):
        if seen is not None:
            seen.append((request.id, tuple(state["seen"])))
        return state["answer"] == "right"

    stated = {
        "context": lambda request: schema(tenant=f"of {request.id}"),
        "configurable": lambda request: {"user": "ann", "thread_id": f"thread {request.id}"},
    }
    build = {"build": lambda vine: app_of(vine, schema, checkpointer)}
    return toy(score=score, **{**build, **stated, **changes})


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("schema", [Data, Checked, Typed])
def test_a_unit_runs_with_the_applications_own_settings(schema, replay):
    """Nodes failed: "'RunContext' object has no attribute 'tenant'", and no key of ``configurable`` but a thread."""
    seen = []
    workflow = workflow_of(schema, seen, replay=replay, checkpointer=InMemorySaver() if replay else None)
    units = make_units(workflow, catalog_for(workflow), {"test": ToyBackend()})
    request, state, prefix = workflow.requests[0], None, ()
    line = f"of {request.id} ann thread {request.id}"
    for length in (1, 2):
        prefix = (*prefix, "m0")
        outcome = units.run(request, prefix, state)
        assert outcome.observation.failure is None, outcome.observation.detail
        assert seen[-1] == (request.id, (line,) * (2 * length))
        if outcome.observation.stopped:
            break
        state = outcome.checkpoint


def test_a_dict_becomes_what_the_schema_says():
    seen = []
    workflow = workflow_of(Data, seen, context=lambda request: {"tenant": "plain"})
    units = make_units(workflow, catalog_for(workflow), {"test": ToyBackend()})
    assert units.run(workflow.requests[0], ("m0",), None).observation.failure is None
    assert seen[0][1][0].startswith("plain ann")


def outcomes_of(path, workflow, workers):
    settings = ProfileSettings(coverage=1.0, execution=ExecutionConfig(isolation="thread", workers=workers))
    with new_store(path, workflow) as store:
        profile(workflow, catalog_for(workflow), {"test": ToyBackend()}, store, settings)
        rows = store.observations()
    return sorted((row.request_id, row.prefix, row.success, row.stopped, row.failure) for row in rows)


@pytest.mark.parametrize("workers", [1, 3])
def test_units_of_one_thread_do_not_mix(tmp_path, workers):
    """Every unit of a request has the same ``thread_id`` as the application sees it."""
    alone = workflow_of(configurable=lambda request: {"user": "ann"})  # a thread for each unit
    assert outcomes_of(tmp_path / "a.db", workflow_of(), workers) == outcomes_of(tmp_path / "b.db", alone, workers)


def test_it_is_served_for_a_verification_with_the_same_settings():
    """Without a ``thread_id`` an application with a checkpointer failed every request."""
    seen = []
    workflow = workflow_of(Data, seen, checkpointer=InMemorySaver())
    vine = VineLM(catalog_for(workflow), {"test": ToyBackend()}, template=workflow.template)
    app, request = workflow.build(vine), workflow.requests[0]
    for _ in range(2):  # the second is no second turn on the thread
        policy = DefaultPolicy(vine.default_model, clock=vine.new_clock(), template=workflow.template, request=request)
        assert serve(workflow, vine, app, request, policy=policy).failure is None
    assert seen[0] == seen[1]
    assert set(seen[0][1]) == {f"of {request.id} ann thread {request.id}"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"configurable": lambda request: ["user"]}, r"configurable\(request\) returned list: return a dict"),
        ({"configurable": lambda request: {"checkpoint_id": "1"}}, "a key 'checkpoint_id', which LangGraph keeps for itself"),
        ({"context": lambda request: request.data["nobody"]}, r"context\(request\) raised KeyError for request"),
    ],
)
def test_mistakes_are_named_in_one_line(changes, words):
    workflow = workflow_of(**changes)
    units = make_units(workflow, catalog_for(workflow), {"test": ToyBackend()})
    with pytest.raises(WorkflowError, match=words):
        units.run(workflow.requests[0], ("m0",), None)


def test_a_function_gets_no_settings():
    workflow = workflow_of(build=lambda vine: dict)
    with pytest.raises(WorkflowError, match=r"context\(request\) has no effect"):
        make_units(workflow, catalog_for(workflow), {"test": ToyBackend()})
