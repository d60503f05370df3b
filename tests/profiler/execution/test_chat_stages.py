"""Applications that hold their models at module level: every call in a node is a stage, profiled unit by unit.

They were "not wrapped" to the profiler.
"""

import operator
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Annotated, TypedDict

import pytest
from kit.toys.chat import APP_VINE, FORMS, build_with_route, chat_toy, compiled, llm, writer
from kit.toys.profiling import ToyBackend, answer_of, catalog_for, expected, new_store, toy
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from vinelm.errors import WorkflowError
from vinelm.profiler import ExecutionConfig, ProfileSettings, check_workflow, profile
from vinelm.profiler.execution.fingerprint import fingerprint
from vinelm.profiler.execution.unit import UnitRunner
from vinelm.template import Stage, Template


def runner(workflow):
    return UnitRunner(workflow, catalog_for(workflow), {"test": ToyBackend()})


@pytest.mark.parametrize("stop", ["workflow", "oracle"])
@pytest.mark.parametrize("form", FORMS)
def test_every_unit_is_that_of_a_wrapped_stage(form, stop):
    """In chains, functions, coroutines and tools; the models were made from another VineLM."""
    workflow = chat_toy(form, n_requests=3, stop=stop)
    units, rows = runner(workflow), 0
    for request in workflow.requests:
        checkpoints = {(): None}
        for prefix in (path for depth in (1, 2, 3) for path in product(("m0", "m1"), repeat=depth)):
            if prefix[:-1] not in checkpoints:
                continue
            outcome = units.run(request, prefix, checkpoints[prefix[:-1]])
            row, rows = outcome.observation, rows + 1
            wanted = expected(request.id, prefix) | ({"stopped": True} if len(prefix) == 3 else {})  # a plain edge ends there
            assert {key: getattr(row, key) for key in wanted} == wanted
            if outcome.checkpoint is not None and (stop == "oracle" or not row.stopped):
                checkpoints[prefix] = outcome.checkpoint
    calls = units.backends["test"].calls
    assert len(calls) == len(set(calls)) == rows  # each was made once: a unit ends before the next


@pytest.mark.parametrize("isolation", ["inline", "thread"])
def test_a_profile_of_module_level_models(tmp_path, isolation):
    workflow = toy(build=partial(build_with_route, form="functions"), n_requests=2)
    with new_store(tmp_path / "s.db", workflow) as store:
        config = ExecutionConfig(isolation=isolation, workers=1)
        profile(
            workflow,
            catalog_for(workflow),
            {"test": ToyBackend()},
            store,
            ProfileSettings(sampler="exhaustive", execution=config),
        )
        rows = store.observations()
    assert rows
    for row in rows:
        wanted = expected(row.request_id, row.prefix)
        assert {key: getattr(row, key) for key in wanted} == wanted


def test_check_passes():
    assert check_workflow(chat_toy(), catalog_for(toy())).is_ok


class Fan(TypedDict, total=False):
    question: str
    parts: Annotated[list, operator.add]
    answer: str


def test_a_fan_out_is_one_invocation():
    def plan(state: Fan):
        return {"answer": writer.invoke(state["question"]).text}

    def work(part):
        return {"parts": [APP_VINE.chat_model("work").invoke(str(part)).text]}

    def join(state: Fan):
        return {"answer": APP_VINE.chat_model("join").invoke("together").text}

    graph = StateGraph(Fan)
    for name, node in (("plan", plan), ("work", work), ("join", join)):
        graph.add_node(name, node)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda state: [Send("work", {"part": i}) for i in range(3)], ["work"])
    graph.add_edge("work", "join")
    graph.add_edge("join", END)
    app = graph.compile()
    stages = tuple(Stage(name, ("m0", "m1")) for name in ("generate", "work", "join"))
    units = runner(toy(build=lambda vine: app, template=Template(stages), score=lambda request, state: True))
    [request, *_] = units.workflow.requests
    first = units.run(request, ("m0",), None)
    second = units.run(request, ("m0", "m1"), first.checkpoint)
    third = units.run(request, ("m0", "m1", "m0"), second.checkpoint)
    assert [one.observation.calls for one in (first, second, third)] == [1, 3, 1]
    assert third.observation.stopped
    assert units.backends["test"].calls == [
        (request.id, ("m0",)),
        *[(request.id, ("m0", "m1"))] * 3,
        (request.id, ("m0", "m1", "m0")),
    ]


def twice(state):
    """The application forgives its models everything, even the refusal of the second call."""
    answer = llm.invoke(state["question"]).text
    with suppress(Exception):
        answer = llm.invoke(answer).text
    return {"answer": answer, "log": ["generate"]}


def test_a_second_call_in_one_node_is_refused_in_one_line():
    app = compiled((twice, twice))
    units = runner(toy(build=lambda vine: app))
    with pytest.raises(
        WorkflowError, match="the node 'generate' calls the stage 'generate' after another call in one execution"
    ):
        units.run(units.workflow.requests[0], ("m0",), None)
    assert len(units.backends["test"].calls) == 1


def test_what_is_no_stage_is_refused_before_anything_runs():
    app = compiled((lambda state: {"answer": "x", "log": []},) * 2)
    with pytest.raises(
        WorkflowError, match=r"the node 'generate' is not wrapped: .* or let it call vine.chat_model\('generate'\)"
    ):
        runner(toy(build=lambda vine: app))


def test_a_stage_may_have_another_name_than_its_node():
    def node(state):
        return {"answer": APP_VINE.chat_model("draft").invoke(state["question"]).text, "log": ["x"]}

    app = compiled((node, node))
    workflow = toy(build=lambda vine: app, template=Template((Stage("draft", ("m0", "m1")),)))
    units = runner(workflow)
    row = units.run(workflow.requests[0], ("m1",), None).observation
    assert (row.stage, row.success) == ("draft", answer_of("q0", ("m1",)) in ("right", "odd"))


def test_a_prompt_in_a_chain_is_part_of_the_fingerprint(monkeypatch):
    from kit.toys import chat as module

    def parts():
        workflow = chat_toy()
        return fingerprint(workflow, catalog_for(workflow), {"test": ToyBackend()})

    before = parts()
    changed = module.ChatPromptTemplate.from_template("another prompt about {question}") | writer | module.StrOutputParser()
    monkeypatch.setattr(module, "chain", changed)
    after = parts()
    assert {name for name in before if before[name] != after[name]} == {"node generate"}


def test_a_chain_may_be_a_node_itself():
    def with_prompt(text):
        chain = ChatPromptTemplate.from_template(text) | writer | (lambda message: {"answer": message.text, "log": ["x"]})
        app = compiled((chain, chain))
        return toy(build=lambda vine: app, template=Template((Stage("generate", ("m0", "m1")),)))

    workflow = with_prompt("{question}?")
    assert runner(workflow).run(workflow.requests[0], ("m1",), None).observation.calls == 1
    digests = [
        fingerprint(with_prompt(text), catalog_for(toy()), {"test": ToyBackend()}) for text in ("{question}?", "{question}!")
    ]
    assert digests[0]["node generate"] != digests[1]["node generate"]


async def asking(state):
    answer = ""
    async for chunk in llm.astream(state["question"]):
        answer += chunk.text
    return {"answer": answer, "log": [*state.get("log", ()), "x"]}


def streaming(state):
    answer = "".join(chunk.text for chunk in llm.stream(state["question"]))
    return {"answer": answer, "log": [*state.get("log", ()), "x"]}


def with_fallback(state):
    """The application's own fallback, which must not run at the end of a unit."""
    answer = llm.with_fallbacks([llm]).invoke(state["question"]).text
    return {"answer": answer, "log": [*state.get("log", ()), "x"]}


@pytest.mark.parametrize("node", [asking, streaming, with_fallback])
def test_a_unit_ends_at_the_next_call_in_whatever_form(node):
    app = compiled((node, node))
    units = runner(toy(build=lambda vine: app, stop="oracle"))
    [request, *_] = units.workflow.requests
    first = units.run(request, ("m0",), None)
    second = units.run(request, ("m0", "m1"), first.checkpoint)
    for outcome, prefix in ((first, ("m0",)), (second, ("m0", "m1"))):
        wanted = expected(request.id, prefix)
        del wanted["latency_s"]  # a stream of one word ends with its first token
        assert {key: getattr(outcome.observation, key) for key in wanted} == wanted
    assert units.backends["test"].calls == [(request.id, ("m0",)), (request.id, ("m0", "m1"))]


def test_an_async_fan_out_ends_a_unit():
    async def work(part):
        return {"parts": [(await writer.bind().ainvoke(str(part))).text]}

    async def plan(state: Fan):
        return {"answer": (await llm.ainvoke(state["question"])).text}

    graph = StateGraph(Fan)
    graph.add_node("plan", plan)
    graph.add_node("work", work)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda state: [Send("work", {"part": i}) for i in range(3)], ["work"])
    app = graph.compile()
    stages = (Stage("plan", ("m0", "m1")), Stage("generate", ("m0", "m1")))
    units = runner(toy(build=lambda vine: app, template=Template(stages), score=lambda request, state: True))
    [request, *_] = units.workflow.requests
    first = units.run(request, ("m0",), None)
    second = units.run(request, ("m0", "m1"), first.checkpoint)
    assert [one.observation.calls for one in (first, second)] == [1, 3]
    assert [one.observation.failure for one in (first, second)] == [None, None]


@pytest.mark.parametrize("form", ["tools", "chains"])
def test_a_failed_call_is_a_failed_row_even_if_the_application_goes_on(form):
    """One that forgives its model everything ("tools") went on to the next stage, and the whole run was refused."""
    workflow = chat_toy(form)
    backend = ToyBackend(before=lambda request, prefix: "server" if prefix == ("m0",) else None)
    units = UnitRunner(workflow, catalog_for(workflow), {"test": backend})
    outcome = units.run(workflow.requests[0], ("m0",), None)
    assert (outcome.observation.failure, outcome.observation.success, outcome.checkpoint) == ("server", None, None)
    assert outcome.observation.cost_usd > 0
