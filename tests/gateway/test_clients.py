"""Other clients than the openai SDK of Python: one changed setting, and nothing else."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from kit.servers.gateways import ASKED, catalog_of, running
from kit.wire.openai_format import answering, calling
from pydantic import BaseModel

from vinelm.replay import read_calls


class Answer(BaseModel):
    """A number."""

    number: int


def add(a: int) -> int:
    """Add."""
    return a


def test_langchain(gateway, upstream):
    chats = pytest.importorskip("langchain_openai")
    chat = chats.ChatOpenAI(model="big", base_url=gateway.url, api_key="none", max_retries=0)
    whole = chat.invoke("2 + 2?")
    assert (whole.content, whole.usage_metadata["input_tokens"]) == ("four", 20)
    pieces = list(chat.stream("2 + 2?"))
    assert "".join(piece.content for piece in pieces) == "four"
    upstream.answers(calling("add", {"a": 2}))
    assert chat.bind_tools([add]).invoke("2 + 2?").tool_calls[0]["args"] == {"a": 2}
    upstream.answers(answering('{"number": 4}'))
    assert chat.with_structured_output(Answer, method="json_schema").invoke("2 + 2?") == Answer(number=4)


def test_a_langgraph_application_names_its_requests(upstream, tmp_path):
    """A graph of two nodes, one header for both of its calls."""
    chats = pytest.importorskip("langchain_openai")
    from langgraph.graph import END, START, MessagesState, StateGraph

    with running(catalog_of(upstream.url), record=tmp_path / "calls.jsonl") as gateway:
        headers = {"x-vinelm-request": "order-7"}
        chat = chats.ChatOpenAI(model="big", base_url=gateway.url, api_key="none", max_retries=0, default_headers=headers)
        graph = StateGraph(MessagesState)
        graph.add_node("draft", lambda state: {"messages": [chat.invoke([("system", "You draft."), *state["messages"]])]})
        graph.add_node("check", lambda state: {"messages": [chat.invoke([("system", "You check."), *state["messages"]])]})
        graph.add_edge(START, "draft")
        graph.add_edge("draft", "check")
        graph.add_edge("check", END)
        graph.compile().invoke({"messages": [("user", "2 + 2?")]})
    calls = list(read_calls([tmp_path / "calls.jsonl"]))
    assert [call.request for call in calls] == ["order-7"] * 2
    assert [call.messages[0]["content"] for call in calls] == ["You draft.", "You check."]


def test_pydantic_ai(gateway):
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=gateway.url, api_key="none")
    assert Agent(OpenAIChatModel("big", provider=provider)).run_sync("2 + 2?").output == "four"


def test_the_agents_sdk(upstream):
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(True)
    with running(catalog_of(upstream.url)) as gateway:

        async def ask():
            async with gateway.aclient() as client:
                model = agents.OpenAIChatCompletionsModel(model="big", openai_client=client)
                return await agents.Runner.run(agents.Agent(name="a", instructions="Answer.", model=model), "2 + 2?")

        import asyncio

        assert asyncio.run(ask()).final_output == "four"


def test_litellm(gateway):
    litellm = pytest.importorskip("litellm")
    answer = litellm.completion(model="openai/big", api_base=gateway.url, api_key="none", messages=ASKED)
    assert answer.choices[0].message.content == "four"


JAVASCRIPT = """
import OpenAI from 'openai';
const client = new OpenAI({ baseURL: process.argv[2], apiKey: 'none', maxRetries: 0 });
const messages = [{ role: 'user', content: '2 + 2?' }];
const whole = await client.chat.completions.create({ model: 'big', messages });
let said = '';
for await (const piece of await client.chat.completions.create({ model: 'big', messages, stream: true })) {
  said += piece.choices[0]?.delta?.content ?? '';
}
const models = [];
for await (const model of client.models.list()) models.push(model.id);
let code = null;
try { await client.chat.completions.create({ model: 'none', messages }); } catch (error) { code = [error.status, error.code]; }
console.log(JSON.stringify([whole.choices[0].message.content, said, models, code]));
"""


@pytest.mark.long
def test_javascript(gateway, tmp_path):
    """npm's openai, where node is on the machine and the package can be had."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", "openai"]
    if subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=300, check=False).returncode:
        pytest.skip("npm cannot install openai here")
    script = Path(tmp_path) / "ask.mjs"
    script.write_text(JAVASCRIPT)
    done = subprocess.run(["node", str(script), gateway.url], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["four", "four", ["big", "small"], [404, "model_not_found"]]
