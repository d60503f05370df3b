"""``vine.openai_client``: code over the openai SDK runs on the model that VineLM chooses, and the SDK sends nothing."""

import asyncio

import pytest
from kit.apps.chat import ScriptedBackend, chat_control
from langchain_core.messages import AIMessage, ToolMessage

from vinelm import VineChatModel
from vinelm.adapters.langchain.openai_client import openai_client

openai = pytest.importorskip("openai")
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
ASKED = [{"role": "user", "content": "2 + 2?"}]


SEEN = []


def adding(name, messages, options):
    """Calls the tool once, then answers."""
    SEEN[:] = messages
    if "tools" not in options or any(isinstance(message, ToolMessage) for message in messages):
        return AIMessage("4", usage_metadata={"input_tokens": 8, "output_tokens": 3, "total_tokens": 11})
    return AIMessage("", tool_calls=[{"name": "add", "args": {"a": 2}, "id": "c1"}])


@pytest.fixture
def backend():
    return ScriptedBackend(adding)


def client_of(backend, *, is_async=False):
    vine = chat_control(backend)
    return openai_client(vine, VineChatModel(vine=vine, stage="generate"), "generate", is_async=is_async)


def test_a_loop_over_tools(backend):
    create = client_of(backend).chat.completions.create
    first = create(model="gpt-4o", messages=ASKED, tools=[TOOL], temperature=0.5, max_completion_tokens=9).choices[0]
    assert (first.finish_reason, first.message.tool_calls[0].function.arguments) == ("tool_calls", '{"a": 2}')
    told = [*ASKED, first.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": "c1", "content": "4"}]
    last = create(model="gpt-4o", messages=told, tools=[TOOL])
    assert (last.choices[0].message.content, last.choices[0].finish_reason) == ("4", "stop")
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (8, 3)
    assert [message.type for message in SEEN] == ["human", "ai", "tool"]
    [(name, _, options), _] = backend.log
    assert last.model == name == "m0"
    assert (options["temperature"], options["max_tokens"], options["tools"]) == (0.5, 9, [TOOL])


def test_a_stream_and_a_coroutine(backend):
    chunks = list(client_of(backend).chat.completions.create(model="x", messages=ASKED, stream=True))
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["4"]
    called = client_of(backend, is_async=True).chat.completions.create(model="x", messages=ASKED)
    assert asyncio.run(called).choices[0].message.content == "4"


def test_another_endpoint_is_refused_in_one_line(backend):
    with pytest.raises(openai.BadRequestError, match=r"VineLM serves chat\.completions\.create"):
        client_of(backend).responses.create(model="x", input="?")
    assert backend.log == []
