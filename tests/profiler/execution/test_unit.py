"""One unit: the right stage from the right state, everything recorded, failures as rows."""

import random
import re
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from kit.toys.profiling import State, ToyBackend, build, catalog_for, expected, plain_edge, reachable, toy

from vinelm.errors import CallError, ConfigError, WorkflowError
from vinelm.profiler.execution.unit import UnitRunner
from vinelm.template import Loop, Stage, Template


def worker_of(workflow, backend=None):
    return UnitRunner(workflow, catalog_for(workflow), {"test": backend or ToyBackend()})


def run_path(worker, request, path):
    outcome = None
    for k in range(1, len(path) + 1):
        outcome = worker.run(request, path[:k], outcome.checkpoint if outcome else None)
    return outcome


@pytest.mark.parametrize("stop", ["oracle", "workflow"])
@pytest.mark.parametrize("edge", [None, plain_edge], ids=["vine.route", "plain edge"])
def test_every_cell_shows_what_it_must(stop, edge):
    workflow = toy(n_requests=6, stop=stop, build=partial(build, route=edge))
    backend = ToyBackend()
    worker = worker_of(workflow, backend)
    requests = {request.id: request for request in workflow.requests}
    checkpoints = {}
    cells = list(reachable(workflow))
    for request_id, prefix in cells:
        outcome = worker.run(requests[request_id], prefix, checkpoints.get((request_id, prefix[:-1])))
        checkpoints[request_id, prefix] = outcome.checkpoint
        wanted = expected(request_id, prefix)
        if edge is plain_edge and len(prefix) == 3:
            wanted["stopped"] = True  # its own loop limit ends it there
        assert {name: getattr(outcome.observation, name) for name in wanted} == wanted
        assert outcome.observation.failure is None
        assert outcome.observation.tool_latency_s == 0.0
        assert outcome.observation.ttft_s == 0.1
    assert backend.calls == cells  # one call each, of its own model, and nothing before it again


def test_a_checkpoint_resumes_in_another_worker_and_in_any_order():
    workflow = toy(n_requests=1, stop="oracle")
    request = workflow.requests[0]
    first = worker_of(workflow).run(request, ("m0",), None)
    second = worker_of(workflow)
    order = ["m1", "m0", "m1"]
    seen = [second.run(request, ("m0", model), first.checkpoint) for model in order]
    assert seen[0] == seen[2]
    assert [one.observation.prefix for one in seen] == [("m0", "m1"), ("m0", "m0"), ("m0", "m1")]


def test_equal_states_give_equal_checkpoints():
    workflow = toy(n_requests=1, stop="oracle")
    one, two = (run_path(worker_of(workflow), workflow.requests[0], ("m1", "m0")) for _ in range(2))
    assert one.checkpoint is not None
    assert one.checkpoint == two.checkpoint


def test_a_state_is_normalised_at_every_boundary():
    """A tuple is a list for the next stage, whether the checkpoint was resumed here or elsewhere."""
    seen = []

    def generate(state: State, model) -> dict:
        return {"answer": model.invoke("x").text, "log": ("a", "tuple")}

    def repair(state: State, model) -> dict:
        seen.append(state["log"])
        return {"answer": model.invoke("x").text}

    worker = worker_of(rebuilt(generate, repair))
    run_path(worker, worker.workflow.requests[0], ("m0", "m1"))
    assert seen == [["a", "tuple"]]


def rebuilt(generate, repair, check=lambda state: {"checked": 1}, **changes):
    def build(vine):
        from langgraph.graph import END, START, StateGraph

        graph = StateGraph(State)
        graph.add_node("generate", vine.stage("generate", generate))
        graph.add_node("repair", vine.stage("repair", repair))
        graph.add_node("check", check)
        graph.add_edge(START, "generate")
        graph.add_edge("generate", "check")
        graph.add_edge("repair", "check")
        graph.add_conditional_edges("check", vine.route(lambda state: False, again="repair", end=END), ["repair", END])
        return graph

    return toy(**({"build": build, "score": lambda request, state: False, "stop": "oracle"} | changes))


def ask(state: State, model) -> dict:
    return {"answer": model.invoke("x").text}


def test_a_failed_call_is_a_row_with_kind_and_cost():
    workflow = toy(n_requests=1)
    worker = worker_of(workflow, ToyBackend(before=lambda request_id, prefix: "rate_limit"))
    outcome = worker.run(workflow.requests[0], ("m1",), None)
    row = outcome.observation
    assert (row.failure, row.success, row.stopped, row.calls) == ("rate_limit", None, None, 1)
    assert row.cost_usd == expected("q0", ("m1",))["cost_usd"]
    assert outcome.checkpoint is None


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
def test_a_failing_tool_keeps_what_the_stage_cost_and_no_secret(kind):
    def broken_tool(state: State) -> dict:
        raise kind("sk-canary in the prompt")

    workflow = rebuilt(ask, ask, broken_tool)
    row = worker_of(workflow).run(workflow.requests[0], ("m0",), None).observation
    assert (row.failure, row.calls) == ("tool", 1)
    assert re.fullmatch(rf"{kind.__name__} at test_unit.py:\d+", row.detail)
    assert row.cost_usd == expected("q0", ("m0",))["cost_usd"]


def test_a_stage_that_raises_is_a_row():
    def clumsy(state: State, model) -> dict:
        model.invoke("x")
        raise KeyError("sk-canary")

    workflow = rebuilt(clumsy, ask)
    row = worker_of(workflow).run(workflow.requests[0], ("m0",), None).observation
    assert row.failure == "tool"
    assert row.calls == 1
    assert "canary" not in str(row)


def test_a_state_that_cannot_be_kept_is_a_row_that_names_key_and_type():
    def opaque(state: State, model) -> dict:
        return {"answer": model.invoke("x").text, "log": [object()]}

    workflow = rebuilt(opaque, ask)
    row = worker_of(workflow).run(workflow.requests[0], ("m0",), None).observation
    assert row.failure == "state"
    assert row.calls == 1
    assert "'log' (list)" in row.detail
    assert row.detail.endswith("serializable: object")


@pytest.mark.parametrize(
    ("scorer", "words"),
    [
        (lambda request, state: 1 / 0, "score raised ZeroDivisionError"),
        (lambda request, state: sys.exit(0), "score raised SystemExit"),
        (lambda request, state: "yes", "score returned str, not a bool or a number in [0, 1]"),
        (lambda request, state: 1.5, "score returned 1.5, which is outside of [0, 1]"),
        (lambda request, state: float("nan"), "score returned nan, which is outside of [0, 1]"),
    ],
)
def test_a_scorer_that_cannot_tell_is_a_row_and_no_wrong_answer(scorer, words):
    workflow = toy(n_requests=1, score=scorer)
    row = worker_of(workflow).run(workflow.requests[0], ("m0",), None).observation
    assert (row.failure, row.success) == ("tool", None)
    assert row.detail.startswith(words)


@pytest.mark.parametrize("score", [0.7, 1, 0.0])
def test_a_graded_score_is_kept_as_it_is(score):
    workflow = toy(n_requests=1, score=lambda request, state: score)
    row = worker_of(workflow).run(workflow.requests[0], ("m0",), None).observation
    assert (row.failure, row.success) == (None, score)


def test_the_oracle_stop_needs_a_bool():
    workflow = toy(n_requests=1, stop="oracle", score=lambda request, state: 0.7)
    row = worker_of(workflow).run(workflow.requests[0], ("m0",), None).observation
    assert (row.failure, row.detail) == ("tool", "score returned float: the oracle stop needs a bool")


def test_stages_that_only_exist_as_coroutines():
    async def generate(state: State, model) -> dict:
        return {"answer": (await model.ainvoke("x")).text, "log": ["g"]}

    workflow = rebuilt(generate, ask)
    outcome = run_path(worker_of(workflow), workflow.requests[0], ("m0", "m1", "m0"))
    assert outcome.observation.prefix == ("m0", "m1", "m0")
    assert outcome.observation.failure is None


def test_a_stage_without_an_answer_is_never_scored():
    def never(request, state):
        raise AssertionError("scored")

    template = Template(
        (Stage("generate", ("m0", "m1"), answerable=False), Loop((Stage("repair", ("m0", "m1")),), 2)), "oracle"
    )
    workflow = rebuilt(ask, ask, score=never, template=template)
    row = worker_of(workflow).run(workflow.requests[0], ("m0",), None).observation
    assert (row.success, row.failure) == (False, None)


def test_a_graph_that_leaves_its_template_stops_the_profile():
    models = ("m0", "m1")
    template = Template((Stage("generate", models), Stage("repair", models), Stage("polish", models)), "oracle")

    def build(vine):
        from langgraph.graph import START, StateGraph

        graph = StateGraph(State)
        for name in ("generate", "repair", "polish"):
            graph.add_node(name, vine.stage(name, ask))
        graph.add_edge(START, "generate")
        graph.add_edge("generate", "polish")
        graph.add_edge("polish", "repair")
        return graph

    workflow = toy(template=template, build=build, score=lambda request, state: False)
    with pytest.raises(WorkflowError, match="goes to polish, its template to 'repair'"):
        worker_of(workflow).run(workflow.requests[0], ("m0",), None)


def test_a_configuration_error_is_no_observation():
    def refuse(request_id, prefix):
        raise ConfigError("the variable KEY is not set")

    workflow = toy(n_requests=1)
    with pytest.raises(ConfigError, match="KEY"):
        worker_of(workflow, ToyBackend(before=refuse)).run(workflow.requests[0], ("m0",), None)


def test_nothing_is_left_behind_in_the_worker():
    workflow = toy()
    worker = worker_of(workflow, ToyBackend(before=lambda *_: random.Random(0).choice([None, "server"])))
    for request in workflow.requests:
        worker.run(request, ("m0",), None)
    assert worker.saver._held == {}


def test_langgraphs_own_retries_cost_and_do_not_count_as_latency():
    from langgraph.types import RetryPolicy

    attempts = []

    def flaky(state: State, model) -> dict:
        out = {"answer": model.invoke("x").text}
        attempts.append(1)
        if len(attempts) < 3:
            raise ConnectionError
        return out

    def build(vine):
        from langgraph.graph import START, StateGraph

        graph = StateGraph(State)
        policy = RetryPolicy(max_attempts=3, initial_interval=0.0, jitter=False, retry_on=ConnectionError)
        graph.add_node("generate", vine.stage("generate", flaky), retry_policy=policy)
        graph.add_edge(START, "generate")
        return graph

    template = Template((Stage("generate", ("m0", "m1")),))
    workflow = toy(template=template, build=build, score=lambda request, state: True)
    row = worker_of(workflow).run(workflow.requests[0], ("m0",), None).observation
    assert (row.failure, row.calls, row.retries, row.latency_s) == (None, 3, 2, 1.0)
    assert row.cost_usd == pytest.approx(3 * expected("q0", ("m0",))["cost_usd"])


def test_waiting_for_the_attempt_that_counted_is_no_latency():
    class Waiting(ToyBackend):
        def answer(self, model, call, prompt_chars):
            text, usage = super().answer(model, call, prompt_chars)
            call.clock.sleep(30.0)
            return text, replace(usage, waited_s=30.0, retries=2)

    workflow = toy(n_requests=1)
    row = worker_of(workflow, Waiting()).run(workflow.requests[0], ("m0",), None).observation
    assert row.latency_s == pytest.approx(1.0)
    assert row.retries == 2


def test_a_call_error_of_the_stage_itself_keeps_its_kind():
    def picky(state: State, model) -> dict:
        raise CallError("nothing came", kind="empty")

    workflow = rebuilt(picky, ask)
    row = worker_of(workflow).run(workflow.requests[0], ("m0",), None).observation
    assert (row.failure, row.calls, row.cost_usd) == ("empty", 0, 0.0)


def test_a_tool_before_the_first_stage_may_fail():
    def build(vine):
        from langgraph.graph import START, StateGraph

        graph = StateGraph(State)
        graph.add_node("fetch", lambda state: {}[state["question"]])
        graph.add_node("generate", vine.stage("generate", ask))
        graph.add_edge(START, "fetch")
        graph.add_edge("fetch", "generate")
        return graph

    workflow = toy(template=Template((Stage("generate", ("m0", "m1")),)), build=build)
    row = worker_of(workflow).run(SimpleNamespace(id="q0", data={"question": "x"}), ("m0",), None).observation
    assert (row.failure, row.detail.split(" at ")[0], row.calls, row.latency_s) == ("tool", "KeyError", 0, 0.0)
