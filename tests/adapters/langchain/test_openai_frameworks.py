"""Frameworks over the openai SDK run with one changed line, ``vine.around``: tools, a handoff, a structured result."""

import asyncio
import json

import pytest
from kit.wire.openai_format import completion, stream
from pydantic import BaseModel

from vinelm import VineLM

# A client of an event loop that has ended leaves its connection to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def client(server):
    """An application's own client, wrapped."""
    openai = pytest.importorskip("openai")
    mine = openai.AsyncOpenAI(api_key="sk-mine", base_url=server.url)
    return VineLM(["openai:gpt-5-mini"]).around(mine, "write")


def scripted(*turns):
    """A server whose answers are these, in order: a text, or the name and arguments of a tool call."""

    async def reply(asked, out):
        turn = turns[asked.number]
        call = {"id": f"c{asked.number}", "type": "function", "index": 0}
        pieces = {"content": turn} if isinstance(turn, str) else {}
        if not pieces:
            pieces = {"tool_calls": [{**call, "function": {"name": turn[0], "arguments": json.dumps(turn[1])}}]}
        reason = "stop" if isinstance(turn, str) else "tool_calls"
        if asked.json.get("stream"):
            return await stream(out, pieces, finish_reason=reason)
        return await out.whole(completion(pieces.pop("content", None), finish_reason=reason, **pieces))

    return reply


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_agents_sdk_with_a_tool_and_a_handoff(client, server, is_streamed):
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(True)

    @agents.function_tool
    def weather(city: str) -> str:
        """The weather in a city."""
        return f"sun in {city}"

    model = agents.OpenAIChatCompletionsModel(model="gpt-5-mini", openai_client=client)  # the changed line
    expert = agents.Agent(name="expert", model=model, tools=[weather])
    desk = agents.Agent(name="desk", model=model, handoffs=[expert])
    server.answers(scripted(("transfer_to_expert", {}), ("weather", {"city": "Rome"}), "sunny"))

    async def streamed():
        run = agents.Runner.run_streamed(desk, "weather in Rome?")
        async for _ in run.stream_events():
            pass
        return run

    result = asyncio.run(streamed() if is_streamed else agents.Runner.run(desk, "weather in Rome?"))
    assert (result.final_output, result.last_agent.name) == ("sunny", "expert")
    assert server.asked[-1].json["messages"][-1]["content"] == "sun in Rome"


def test_pydantic_ai_with_a_tool_and_a_structured_result(client, server):
    ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class City(BaseModel):
        name: str
        is_sunny: bool

    agent = ai.Agent(
        OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client)), output_type=City
    )  # the changed line

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather in a city."""
        return f"sun in {city}"

    server.answers(scripted(("weather", {"city": "Rome"}), ("final_result", {"name": "Rome", "is_sunny": True})))
    result = asyncio.run(agent.run("weather in Rome?"))
    assert result.output == City(name="Rome", is_sunny=True)
    assert server.asked[-1].json["messages"][-1]["content"] == "sun in Rome"


def test_llamaindex_with_a_structured_result_and_a_stream(server):
    """Both through the model of the framework, which is wrapped itself."""
    llms = pytest.importorskip("llama_index.llms.openai")
    from llama_index.core.llms import ChatMessage
    from llama_index.core.prompts import PromptTemplate

    class City(BaseModel):
        """A city."""

        name: str

    mine = llms.OpenAI(model="gpt-4.1", api_key="sk-mine", api_base=server.url)
    llm = VineLM(["openai:gpt-4.1"]).around(mine, "write")  # the changed line
    server.answers(scripted(("City", {"name": "Rome"}), "sunny"))
    assert llm.structured_predict(City, PromptTemplate("where is {what}?"), what="the Forum") == City(name="Rome")

    async def streamed():
        return [chunk.delta async for chunk in await llm.astream_chat([ChatMessage(role="user", content="weather?")])]

    assert "".join(asyncio.run(streamed())) == "sunny"
