"""VineChatModel: routing, tools, structured output and streaming survive a switch of model between invocations."""

import asyncio

import pytest
from kit.apps.chat import TOKENS, ScriptedBackend, chat_control, follow
from kit.apps.echo import run
from langchain_core.caches import InMemoryCache
from langchain_core.exceptions import OutputParserException
from langchain_core.globals import set_llm_cache
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, ValidationError
from typing_extensions import TypedDict

from vinelm import VineChatModel
from vinelm.adapters.langgraph import GraphAdapter
from vinelm.errors import CallError, ConfigError
from vinelm.objective import Objective
from vinelm.policies import Policy


class State(TypedDict, total=False):
    out: list


class City(BaseModel):
    """A city."""

    name: str


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sun in {city}"


def models_of(backend):
    return [name for name, _, _ in backend.log]


@pytest.fixture
def backend():
    return ScriptedBackend()


@pytest.fixture
def vine(backend):
    return chat_control(backend)


@pytest.fixture
def model(vine):
    return VineChatModel(vine=vine, stage="generate")


# -- routing -----------------------------------------------------------------------------------------------------


def test_calls_in_one_request_follow_one_another(vine, model, backend):
    policy = follow(vine, "m2", "m0", "m1")
    repair = VineChatModel(vine=vine, stage="repair")
    with vine.request(policy=policy):
        model.invoke("?")
        repair.invoke("?")
        asyncio.run(repair.ainvoke("?"))
    assert [(one.stage, one.prefix) for one in policy.invocations] == [
        ("generate", ("m2",)),
        ("repair", ("m2", "m0")),
        ("repair", ("m2", "m0", "m1")),
    ]
    assert [one.cost_usd for one in policy.invocations] == [0.01] * 3
    assert [one.latency_s for one in policy.invocations] == [1.0] * 3


def test_a_call_outside_is_a_request_of_its_own(model, backend):
    model.invoke("?")
    model.invoke("?")
    assert [prefix for _, prefix, _ in backend.log] == [("m0",), ("m0",)]


def test_its_own_objective_holds_where_nothing_else_is_asked(vine, backend):
    asked = []

    def note(context):
        asked.append(context.objective)

    vine = GraphAdapter(vine.models, template=vine.template, new_policy=note)
    model = VineChatModel(vine=vine, stage="generate", objective={"maximize": "accuracy", "max_cost_usd": 1.0})
    model.invoke("?")
    with vine.request(Objective(minimize="cost", min_accuracy=0.5)):
        model.invoke("?")
        model.invoke("?")
    assert [objective.max_cost_usd for objective in asked] == [1.0, None]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_in_a_graph_the_run_is_the_request(vine, model, backend, mode):
    repair = VineChatModel(vine=vine, stage="repair")

    def one(state: State):
        return {"out": [model.invoke("?").response_metadata["model_name"]]}

    async def aone(state: State):
        return {"out": [(await model.ainvoke("?")).response_metadata["model_name"]]}

    def two(state: State):
        return {"out": [*state["out"], repair.invoke("?").response_metadata["model_name"]]}

    graph = StateGraph(State)
    graph.add_node("one", one if mode == "sync" else aone)
    graph.add_node("two", two)
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    app = graph.compile()
    for path in (["m1", "m2"], ["m2", "m2"]):
        assert run(app, mode, {}, context=vine.context(policy=follow(vine, *path)))["out"] == path


def test_sixty_requests_at_once_keep_apart(vine, model, backend):
    repair = VineChatModel(vine=vine, stage="repair")

    async def request(path):
        with vine.request(policy=follow(vine, *path)):
            first = await model.ainvoke("?")
            second = await repair.ainvoke("?")
        return [message.response_metadata["model_name"] for message in (first, second)]

    async def main():
        paths = [[f"m{i % 3}", f"m{i % 2}"] for i in range(60)]
        assert await asyncio.gather(*map(request, paths)) == paths

    asyncio.run(main())
    assert len(vine.finder.runs) == 0


def test_calls_at_once_share_a_place(vine, model):
    policy = follow(vine, "m1", "m2")
    repair = VineChatModel(vine=vine, stage="repair")

    async def main():
        with vine.request(policy=policy):
            await asyncio.gather(*(model.ainvoke("?") for _ in range(3)))
            await repair.ainvoke("?")

    asyncio.run(main())
    assert [one.prefix for one in policy.invocations] == [("m1",)] * 3 + [("m1", "m2")]


@pytest.mark.parametrize("wrapped", ["generate", "repair"])
def test_wrapped_stages_and_chat_models_share_a_path(vine, wrapped):
    """Their path was kept apart, and such a run refused."""
    names = ("generate", "repair")
    bare = VineChatModel(vine=vine, stage=next(name for name in names if name != wrapped))

    def stage(state: State, model):
        return {"out": [*state.get("out", ()), model.invoke("?").response_metadata["model_name"]]}

    graph = StateGraph(State)
    for name in names:
        graph.add_node(name, vine.stage(name, stage) if name == wrapped else lambda state: stage(state, bare))
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "repair")
    app = graph.compile()
    assert app.invoke({}, context=vine.context(policy=follow(vine, "m1", "m2")))["out"] == ["m1", "m2"]


def test_unknown_settings_and_models_are_refused(vine):
    with pytest.raises(ValidationError, match="temprature"):
        VineChatModel(vine=vine, stage="generate", temprature=1)
    with pytest.raises(ConfigError, match="unknown default model 'm9'"):
        VineChatModel(vine=vine, stage="generate", default="m9")


def test_settings_reach_whichever_model_runs(vine, backend):
    model = VineChatModel(vine=vine, stage="generate", temperature=0.5, stop=["x"], max_tokens=7, timeout=3.0)
    with vine.request(policy=follow(vine, "m2")):
        model.invoke("?", temperature=0.25)
    model.invoke("?", stop=["y"])
    assert [(options["temperature"], options["stop"]) for _, _, options in backend.log] == [(0.25, ["x"]), (0.5, ["y"])]
    assert [(entry.max_tokens, entry.timeout_s) for entry in backend.entries] == [(7, 3.0)] * 2


def test_a_global_cache_does_not_freeze_the_choice(vine, model, backend):
    set_llm_cache(InMemoryCache())
    try:
        for path in ("m0", "m1"):
            with vine.request(policy=follow(vine, path)):
                model.invoke("?")
    finally:
        set_llm_cache(None)
    assert models_of(backend) == ["m0", "m1"]


def test_it_shows_nothing_of_its_control(model):
    assert "vine=" not in repr(model)
    assert set(model.asdict()) <= {"stage", "_type"}


# -- failures ----------------------------------------------------------------------------------------------------


class Fleeing(Policy):
    """Runs m0 until it has failed, then m1."""

    def __init__(self, clock):
        super().__init__(clock=clock)

    def next_model(self, stage, prefix):
        return "m1" if any(one.failure for one in self.invocations) else "m0"

    def should_continue(self, prefix, finished, state, arms=None):
        raise AssertionError


HOW = {
    "invoke": lambda model: model.invoke("?"),
    "ainvoke": lambda model: asyncio.run(model.ainvoke("?")),
    "stream": lambda model: list(model.stream("?")),
    "astream": lambda model: asyncio.run(_collect(model)),
}


async def _collect(model):
    return [chunk async for chunk in model.astream("?")]


@pytest.mark.parametrize("how", HOW)
def test_a_retry_may_run_on_another_model(vine, backend, how):
    backend.fail["m0"] = CallError("m0: server", kind="server")
    policy = Fleeing(vine.new_clock())
    with vine.request(policy=policy):
        HOW[how](VineChatModel(vine=vine, stage="generate", max_retries=1))
    assert [(one.prefix, one.failure) for one in policy.invocations] == [(("m0",), "server"), (("m1",), None)]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("kind", "retries"), [("server", 0), ("auth", 3)])
def test_a_failure_is_recorded_and_raised(vine, backend, how, kind, retries):
    backend.fail["m0"] = CallError("m0: it failed", kind=kind)
    policy = Fleeing(vine.new_clock())
    with vine.request(policy=policy), pytest.raises(CallError, match="it failed"):
        HOW[how](VineChatModel(vine=vine, stage="generate", max_retries=retries))
    assert [(one.prefix, one.failure, one.cost_usd) for one in policy.invocations] == [(("m0",), kind, 0.01)]


# -- tools and structured output ---------------------------------------------------------------------------------


def test_tools_take_the_form_of_the_model_that_runs(vine, model, backend):
    backend.answer = lambda *_: AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Rome"}, "id": "1"}])
    bound = model.bind_tools([weather], tool_choice="weather", strict=True)
    for path in ("m0", "m1", "m2"):
        with vine.request(policy=follow(vine, path)):
            assert bound.invoke("?").tool_calls[0]["args"] == {"city": "Rome"}
    assert [options["tools"] for _, _, options in backend.log] == [
        [{"function": "weather"}],
        [{"input_schema": "weather"}],
        [{"function": "weather"}],
    ]
    assert all(options["tool_choice"] == "weather" and options["strict"] is True for _, _, options in backend.log)


def test_streamed_tool_calls_come_together(vine, model, backend):
    backend.answer = lambda *_: AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Rome"}, "id": "1"}])
    for path in ("m0", "m1"):
        with vine.request(policy=follow(vine, path)):
            first, *rest = model.bind_tools([weather]).stream("?")
        assert sum(rest, first).tool_calls[0]["args"] == {"city": "Rome"}


def structured(name, messages, options):
    if options.get("response_format") == "json":
        return AIMessage('{"name": "Oslo"}')
    return AIMessage("", tool_calls=[{"name": "City", "args": {"name": "Rome"}, "id": "1"}])


@pytest.mark.parametrize("how", ["sync", "async"])
def test_structured_output_is_read_in_whichever_form_it_comes(vine, model, backend, how):
    backend.answer = structured
    chain = model.with_structured_output(City)
    names = []
    for path in ("m0", "m1", "m0"):
        with vine.request(policy=follow(vine, path)):
            names.append((chain.invoke("?") if how == "sync" else asyncio.run(chain.ainvoke("?"))).name)
    assert names == ["Rome", "Oslo", "Rome"]


def test_structured_output_with_the_raw_message(vine, model, backend):
    backend.answer = structured
    chain = model.with_structured_output(City, include_raw=True)
    with vine.request(policy=follow(vine, "m1")):
        out = chain.invoke("?")
    assert (out["parsed"], out["parsing_error"]) == (City(name="Oslo"), None)
    assert out["raw"].text == '{"name": "Oslo"}'
    backend.answer = lambda *_: AIMessage("no")
    out = chain.invoke("?")
    assert out["parsed"] is None
    assert isinstance(out["parsing_error"], OutputParserException)


def test_a_schema_that_is_no_class_gives_a_dict(vine, model, backend):
    backend.answer = structured
    schema = {"title": "City", "description": "A city.", "type": "object", "properties": {"name": {"type": "string"}}}
    assert model.with_structured_output(schema).invoke("?") == {"name": "Rome"}


@pytest.mark.parametrize("text", ["no", '{"title": "Rome"}'])
def test_an_answer_that_does_not_fit_is_an_error(model, backend, text):
    backend.answer = lambda *_: AIMessage(text)
    with pytest.raises(OutputParserException):
        model.with_structured_output(City).invoke("?")


# -- streaming ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["m0", "m1"])
def test_tokens_come_once(vine, model, path):
    policy = follow(vine, path)
    with vine.request(policy=policy):
        tokens = [chunk.text for chunk in model.stream("?")]
    assert [token for token in tokens if token] == list(TOKENS)
    assert len(policy.invocations) == 1


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_tokens_come_once_out_of_a_graph(vine, model, mode):
    def node(state: State):
        return {"out": [model.invoke("?").text]}

    async def anode(state: State):
        return {"out": [(await model.ainvoke("?")).text]}

    graph = StateGraph(State)
    graph.add_node("node", node if mode == "sync" else anode)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    app = graph.compile()
    context = vine.context(policy=follow(vine, "m1"))
    if mode == "sync":
        tokens = [chunk.text for chunk, _ in app.stream({}, context=context, stream_mode="messages")]
    else:

        async def collect():
            return [chunk.text async for chunk, _ in app.astream({}, context=context, stream_mode="messages")]

        tokens = asyncio.run(collect())
    assert [token for token in tokens if token] == list(TOKENS)


def test_tokens_come_once_as_events(vine, model):
    async def collect():
        events = [event async for event in model.astream_events("?", version="v2")]
        return [event["data"]["chunk"].text for event in events if event["event"] == "on_chat_model_stream"]

    assert [token for token in asyncio.run(collect()) if token] == list(TOKENS)


@pytest.mark.parametrize("how", ["stream", "astream"])
def test_a_model_that_cannot_stream_answers_in_one_piece(how):
    backend = ScriptedBackend(lambda *_: AIMessage("whole", id="1"), whole=("m0",))
    chunks = HOW[how](VineChatModel(vine=chat_control(backend), stage="generate"))
    assert "".join(chunk.text for chunk in chunks) == "whole"
    assert len(backend.log) == 1


def test_an_abandoned_stream_is_one_finished_invocation(vine, model):
    policy = follow(vine, "m0")
    with vine.request(policy=policy):
        stream = model.stream("?")
        next(stream)
        stream.close()
    assert [(one.prefix, one.failure) for one in policy.invocations] == [(("m0",), None)]


def test_streaming_can_be_asked_for_in_the_settings(vine, backend):
    model = VineChatModel(vine=vine, stage="generate", streaming=True)
    assert model.invoke("?").text == "".join(TOKENS)
