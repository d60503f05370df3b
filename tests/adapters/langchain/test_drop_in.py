"""A ``vine.chat_model`` goes wherever a ``ChatOpenAI`` goes: what libraries read off a bound model, and what is sent."""

import datetime
import inspect
from typing import Literal

import pytest
from kit.apps.chat import ScriptedBackend, chat_control, follow
from kit.wire.openai_format import answering
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableBinding
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel
from typing_extensions import TypedDict

from vinelm import Catalog, Model, Price, VineChatModel, VineLM, VineMiddleware

PRICE = Price(input=1.0, output=2.0, source="a test", as_of=datetime.date(2026, 11, 1))


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sun in {city}"


@tool
def transfer_to(agent: Literal["law", "tax"]) -> str:
    """Hand over to another agent."""
    return agent


class State(TypedDict, total=False):
    out: str


class City(BaseModel):
    """A city."""

    name: str


@pytest.fixture
def backend():
    return ScriptedBackend(lambda *_: AIMessage("done"))


@pytest.fixture
def vine(backend):
    return chat_control(backend)


@pytest.fixture
def model(vine):
    return VineChatModel(vine=vine, stage="generate")


# -- bound tools -------------------------------------------------------------------------------------------------


def names_of_bound(model):
    """The names of the bound tools, as supervisor libraries read them: off dicts in a provider's form."""
    assert isinstance(model, RunnableBinding)
    return [one["function"]["name"] if one.get("type") == "function" else one.get("name") for one in model.kwargs["tools"]]


def test_libraries_read_bound_tools_as_dicts(model):
    """They found the tools as given: "'StructuredTool' object has no attribute 'get'"."""
    bound = model.bind_tools([weather, {"name": "spell", "input_schema": {"type": "object"}}, City])
    assert names_of_bound(bound) == ["weather", "spell", "City"]
    parameters = bound.kwargs["tools"][0]["function"]["parameters"]
    assert parameters["properties"] == {"city": {"type": "string"}}


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_a_prebuilt_agent_takes_a_model_with_bound_tools(vine, backend, model):
    from langgraph.prebuilt import create_react_agent

    agent = create_react_agent(model.bind_tools([weather, transfer_to]), [weather, transfer_to])
    assert agent.invoke({"messages": [("user", "?")]})["messages"][-1].text == "done"
    assert [options["tools"] for _, _, options in backend.log] == [[{"function": "weather"}, {"function": "transfer_to"}]]
    with pytest.raises(ValueError, match="Missing tools"):
        create_react_agent(model.bind_tools([weather, City]), [weather, transfer_to])


def test_supervisors_may_forbid_parallel_calls(vine, backend, model):
    """They look for the argument in the signature; a model without it is called without it."""
    assert {"parallel_tool_calls", "strict"} <= set(inspect.signature(model.bind_tools).parameters)
    with vine.request(policy=follow(vine, "m0")):
        model.bind_tools([weather], parallel_tool_calls=False).invoke("?")
    ((_, _, options),) = backend.log
    assert "parallel_tool_calls" not in options


def test_a_tool_that_only_its_provider_knows_stays_as_given(model):
    native = {"type": "computer_20250124", "display": 1}
    assert model.bind_tools([native]).kwargs["tools"] == [native]


# -- over the wire -----------------------------------------------------------------------------------------------


def openai_vine(server, *, model_id="gpt-4.1-mini", **others):
    """A catalog of one OpenAI model, and of ``others``: provider by name."""
    how = {"engine": "e", "price": PRICE, "price_id": "p", "timeout_s": 5.0, "api_base": server.url}
    models = [Model(name="a", provider="openai", model_id=model_id, **how)]
    models += [Model(name=name, provider=provider, model_id="m", **how) for name, provider in others.items()]
    return VineLM(Catalog(models))


def test_strict_tools_and_parallel_calls_are_sent_as_asked(server):
    server.answers(answering("done"))
    bound = openai_vine(server).chat_model("write").bind_tools([weather], strict=True, parallel_tool_calls=False)
    bound.invoke("?")
    body = server.asked[0].json
    assert body["parallel_tool_calls"] is False
    assert body["tools"][0]["function"]["strict"] is True
    assert body["tools"] == bound.kwargs["tools"]
    assert "strict" not in body


@pytest.mark.parametrize("way", ["chat_model", "stage"])
def test_structured_output_is_the_providers_own(server, way):
    """It went out as a forced tool call."""
    server.answers(answering('{"name": "Oslo"}'))
    vine, found = openai_vine(server), []

    def write(state: State, model: BaseChatModel):
        found.append(model.with_structured_output(City).invoke("?"))
        return {}

    if way == "chat_model":
        write({}, vine.chat_model("write"))
    else:
        graph = StateGraph(State)
        graph.add_node("write", vine.stage("write", write))
        graph.add_edge(START, "write")
        graph.add_edge("write", END)
        graph.compile().invoke({})
    assert found == [City(name="Oslo")]
    asked = server.asked[0].json["response_format"]
    assert (asked["type"], asked["json_schema"]["name"], asked["json_schema"]["strict"]) == ("json_schema", "City", True)


@pytest.mark.parametrize("with_middleware", [False, True])
def test_an_agent_asks_for_its_answer_in_the_providers_own_way(server, with_middleware):
    server.answers(answering('{"name": "Oslo"}'))
    vine = openai_vine(server)
    middleware = [VineMiddleware(vine)] if with_middleware else []
    agent = create_agent(vine.chat_model("model"), [weather], response_format=City, middleware=middleware)
    assert agent.invoke({"messages": [("user", "?")]})["structured_response"] == City(name="Oslo")
    body = server.asked[0].json
    assert body["response_format"]["json_schema"]["name"] == "City"
    assert [one["function"]["name"] for one in body["tools"]] == ["weather"]


def test_an_agent_with_a_model_that_takes_no_schema_uses_a_tool(server):
    assert openai_vine(server).chat_model("model").model_name == "gpt-4.1-mini"
    assert openai_vine(server, other="gemini").chat_model("model").model_name is None
