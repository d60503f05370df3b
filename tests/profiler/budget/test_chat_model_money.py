"""A ``VineChatModel`` in a profiled application makes no call without a reservation (docs/architecture.md#invariants).

It is a stage like a wrapped one; a call that has no place in the template is refused.
"""

import threading
from dataclasses import replace

import pytest
from kit.toys.priced import PricedBackend
from kit.toys.profiling import State, catalog_for, cost_of, generate, new_store, toy

from vinelm.adapters.langchain import VineChatModel
from vinelm.errors import WorkflowError
from vinelm.profiler import ProfileSettings, profile
from vinelm.template import Stage, Template

LIMITS = [{}, {"max_tokens": 7}, {"timeout": 5.0}]


def with_helper(before=None, inside=None, **fields):
    """One wrapped stage; ``before`` is a tool in front of it, ``inside`` runs in the stage: both are given the model."""

    def build(vine):
        from langgraph.graph import END, START, StateGraph

        model = VineChatModel(vine=vine, stage="helper", **fields)

        def stage(state: State, model) -> State:
            if inside:
                inside(vine, helper)
            return generate(state, model)

        helper = model
        graph = StateGraph(State)
        graph.add_node("prepare", lambda state: {"checked": 0, **({} if before is None else {"answer": before(vine, helper)})})
        graph.add_node("generate", vine.stage("generate", stage))
        graph.add_edge(START, "prepare")
        graph.add_edge("prepare", "generate")
        graph.add_edge("generate", END)
        return graph

    fields_of_toy = {"build": build, "template": Template((Stage("generate", ("m0", "m1")),)), "score": lambda *_: True}
    return toy(n_requests=1, **fields_of_toy)


def helper_first(workflow):
    return replace(workflow, template=Template((Stage("helper", ("m0", "m1")), *workflow.template.steps)))


def run(store, workflow, backend, **settings):
    settings = {"sampler": "exhaustive"} | settings
    return profile(workflow, catalog_for(workflow), {"test": backend}, store, ProfileSettings(**settings))


@pytest.mark.parametrize("fields", LIMITS, ids=str)
def test_no_call_is_made_for_which_nothing_is_left(tmp_path, fields):
    """The backend bounds a call at a cent; less than that is left."""
    workflow, backend = with_helper(before=lambda vine, model: model.invoke("question").text, **fields), PricedBackend()
    workflow = helper_first(workflow)
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, backend, budget_usd=0.0099)
        assert (result.stopped_by, backend.calls, result.committed_usd) == ("budget", [], 0.0)


@pytest.mark.parametrize("fields", LIMITS, ids=str)
def test_its_money_is_set_aside_before_the_call(tmp_path, fields):
    """The helper is the first stage, and the wrapped one the second."""
    workflow, backend = with_helper(before=lambda vine, model: model.invoke("question").text, **fields), PricedBackend()
    workflow = helper_first(workflow)
    held = []  # (set aside, spent so far) at each call
    with new_store(tmp_path / "s.db", workflow) as store:
        backend.before = lambda *_: held.append((store.committed_usd(), sum(cost_of(*cell) for cell in backend.calls[:-1])))
        run(store, workflow, backend, budget_usd=1.0)
        rows = store.observations()
        assert sorted(row.prefix for row in rows) == [("m0",), ("m0", "m0"), ("m0", "m1"), ("m1",), ("m1", "m0"), ("m1", "m1")]
        assert len(held) == len(backend.calls) == 6
        assert all(set_aside >= spent + PricedBackend.upper - 1e-12 for set_aside, spent in held)
        assert store.committed_usd() >= sum(cost_of(*cell) for cell in backend.calls) - 1e-12


def test_a_stage_that_the_template_lacks_is_refused_before_its_call(tmp_path):
    workflow, backend = with_helper(before=lambda vine, model: model.invoke("question").text), PricedBackend()
    with new_store(tmp_path / "s.db", workflow) as store:
        with pytest.raises(WorkflowError, match="calls the stage 'helper' as invocation 1, where the template has 'generate'"):
            run(store, workflow, backend, budget_usd=1.0)
        assert backend.calls == []


def in_a_thread(vine, model):
    """LangGraph does not say there which run it belongs to."""
    thread = threading.Thread(target=lambda: caught(model))
    thread.start()
    thread.join()


def as_a_request_of_its_own(vine, model):
    with vine.request({"maximize": "accuracy"}):
        caught(model)


errors = []


def caught(model):
    try:
        model.invoke("question")
    except Exception as error:
        errors.append(error)


@pytest.mark.parametrize("inside", [in_a_thread, lambda vine, model: caught(model)], ids=["thread", "stage"])
@pytest.mark.parametrize("fields", LIMITS, ids=str)
def test_a_call_that_no_row_would_hold_is_not_made(tmp_path, inside, fields):
    workflow, backend = with_helper(inside=inside, **fields), PricedBackend()
    errors.clear()
    with new_store(tmp_path / "s.db", workflow) as store:
        run(store, workflow, backend)
        rows = store.observations()
    assert [type(error) for error in errors] == [WorkflowError] * 2
    assert backend.calls == [(row.request_id, row.prefix) for row in rows] == [("q0", ("m0",)), ("q0", ("m1",))]
    assert sum(row.cost_usd for row in rows) == pytest.approx(sum(cost_of(*cell) for cell in backend.calls))


def test_nor_one_under_a_request_of_its_own(tmp_path):
    workflow, backend = with_helper(inside=as_a_request_of_its_own), PricedBackend()
    errors.clear()
    with new_store(tmp_path / "s.db", workflow) as store:
        run(store, workflow, backend)
        assert store.committed_usd() == pytest.approx(sum(cost_of(*cell) for cell in backend.calls))
    assert len(errors) == len(backend.calls) == 2
