"""What any LangChain callback is told of a call: at its start already, the provider and the name of the model that answers."""

import asyncio

import pytest
from kit.catalogs import make_catalog
from kit.wire.openai_format import chunks, completion
from kit.wire.server import WireServer, end_connections
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from vinelm import Stage, Template, VineLM
from vinelm.catalog import Catalog
from vinelm.objective import Objective
from vinelm.policies import StaticPolicy

# A client of an event loop that has ended leaves its connection to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Tracer(BaseCallbackHandler):
    """Reads the model where tracers do: metadata, parameters and the result."""

    def __init__(self):
        self.starts, self.ends = [], []

    def on_chat_model_start(self, serialized, messages, *, metadata=None, invocation_params=None, **kwargs):
        self.starts.append(
            (metadata["ls_provider"], metadata["ls_model_name"], invocation_params["model"], invocation_params["model_name"])
        )
        assert not [key for key in (*metadata, *invocation_params) if "vinelm" in key]

    def on_llm_end(self, response, **kwargs):
        message = response.generations[0][0].message
        self.ends.append(((response.llm_output or {}).get("model_name"), message.response_metadata.get("model_name")))


async def _collected(model, config):
    return [chunk async for chunk in model.astream("?", config)]


CALLS = {
    "invoke": lambda model, config: model.invoke("?", config),
    "ainvoke": lambda model, config: asyncio.run(model.ainvoke("?", config)),
    "batch": lambda model, config: model.batch(["?"], config),
    "stream": lambda model, config: list(model.stream("?", config)),
    "astream": lambda model, config: asyncio.run(_collected(model, config)),
}


async def _as_asked(asked, out):
    """Answers as the model that the request names: what tracers read is the server's own word."""
    name = asked.json["model"]
    if not asked.json.get("stream"):
        return await out.whole({**completion("yes"), "model": name})
    await out.chunked()
    for event in chunks("yes"):
        await out.event({**event, "model": name})
    await out.event("[DONE]")
    return await out.finish()


@pytest.fixture
def server():
    found = WireServer()
    found.answers(_as_asked)
    yield found
    found.stop()
    end_connections()


@pytest.fixture
def vine(server):
    entries = make_catalog(2, provider="openai", api_base=server.url, model_id="org/model").models
    entries = [entry.model_copy(update={"model_id": f"org/{entry.name}"}) for entry in entries]
    return VineLM(Catalog(entries), template=Template((Stage("write"),)))


def policy_of(vine, name):
    return vine.request(Objective(maximize="accuracy"), policy=StaticPolicy(vine.template, (name,)))


@pytest.mark.parametrize("how", CALLS)
def test_the_start_names_the_chosen_model(vine, how):
    """It named ``vinelm``, for which no tracer knows a price."""
    tracer, names = Tracer(), ("m0", "m1")
    for name in names:
        with policy_of(vine, name):
            CALLS[how](vine.chat_model("write"), {"callbacks": [tracer]})
    assert tracer.starts == [("openai", *[f"org/{name}"] * 3) for name in names]
    assert [last for _, last in tracer.ends] == ["org/m0", "org/m1"]
    if "stream" not in how:
        assert [first for first, _ in tracer.ends] == ["org/m0", "org/m1"]


class State(TypedDict, total=False):
    out: str


@pytest.mark.parametrize("way", ["stage", "chat_model"])
def test_in_a_graph_too(vine, way):
    tracer, llm = Tracer(), vine.chat_model()

    def write(state: State, model=llm):
        return {"out": model.invoke("?").text}

    def plain(state: State):
        return write(state)

    graph = StateGraph(State)
    graph.add_node("write", vine.stage("write", write) if way == "stage" else plain)
    graph.add_edge(START, "write")
    graph.add_edge("write", END)
    context = vine.context(policy=StaticPolicy(vine.template, ("m1",)))
    graph.compile().invoke({}, {"callbacks": [tracer]}, context=context)
    assert tracer.starts == [("openai", "org/m1", "org/m1", "org/m1")]
    assert tracer.ends == [("org/m1", "org/m1")]


def test_tokens_are_counted_by_the_providers_name(vine):
    with get_usage_metadata_callback() as usage, policy_of(vine, "m1"):
        vine.chat_model("write").invoke("?")
    assert list(usage.usage_metadata) == ["org/m1"]


class Broken(BaseCallbackHandler):
    raise_error = True

    def on_chat_model_start(self, *args, **kwargs):
        raise OSError("the tracer is down")


@pytest.mark.parametrize("how", CALLS)
def test_a_call_that_a_callback_stops_is_a_failed_invocation(vine, how):
    policy = StaticPolicy(vine.template, ("m1",))
    with vine.request(policy=policy), pytest.raises(OSError, match="tracer is down"):
        CALLS[how](vine.chat_model("write"), {"callbacks": [Broken()]})
    assert [(one.prefix, one.usages) for one in policy.invocations] == [(("m1",), ())]
    assert policy.invocations[0].failure is not None


def test_several_prompts_at_once_are_an_invocation_each(vine):
    policy = StaticPolicy(vine.template, ("m1",))
    with vine.request(policy=policy):
        result = vine.chat_model("write").generate_prompt([_prompt("one"), _prompt("two")])
    assert len(result.generations) == 2
    assert len(policy.invocations) == 2


def _prompt(text):
    from langchain_core.prompt_values import StringPromptValue

    return StringPromptValue(text=text)
