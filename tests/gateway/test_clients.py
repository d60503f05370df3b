"""Other clients than the openai SDK of Python: one changed setting, and nothing else."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
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


# Not among the development tools: their dependencies are many. Each runs where the library is installed.


@pytest.mark.filterwarnings("ignore")
def test_litellm(gateway, upstream):
    litellm = pytest.importorskip("litellm")
    how = {"model": "openai/big", "api_base": gateway.url, "api_key": "none", "messages": ASKED, "max_retries": 0}
    assert litellm.completion(**how).choices[0].message.content == "four"
    pieces = list(litellm.completion(**how, stream=True, stream_options={"include_usage": True}))
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == "four"
    assert pieces[-1].usage.prompt_tokens == 20
    upstream.answers(calling("add", {"a": 2}))
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    [call] = litellm.completion(**how, tools=[tool]).choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 2})
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**{**how, "model": "openai/none"})


LLAMAINDEX = """
import json, sys
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
def add(a: int) -> int:
    return a
how = {"is_chat_model": True, "is_function_calling_model": True, "max_retries": 0}
llm = OpenAILike(model="big", api_base=sys.argv[1], api_key="none", **how)
said = [llm.complete("2 + 2?").text, "".join(piece.delta or "" for piece in llm.stream_complete("2 + 2?"))]
[call] = llm.get_tool_calls_from_response(llm.chat_with_tools([FunctionTool.from_defaults(add)], user_msg="add"))
print(json.dumps([*said, call.tool_name, call.tool_kwargs]))
"""


def test_llamaindex(gateway, upstream, tmp_path):
    """In a process of its own elsewhere: LlamaIndex imports `workflows`, which in this folder is another package."""
    if find_spec("llama_index") is None or find_spec("llama_index.llms.openai_like") is None:
        pytest.skip("needs llama-index-llms-openai-like")
    tools, text = calling("add", {"a": 2}), answering("fo", "ur")

    async def reply(asked, out):
        await (tools if asked.json.get("tools") else text)(asked, out)

    upstream.answers(reply)
    command = [sys.executable, "-W", "ignore", "-c", LLAMAINDEX, gateway.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["four", "four", "add", {"a": 2}]


@pytest.mark.filterwarnings("ignore")
def test_dspy(gateway, upstream):
    dspy = pytest.importorskip("dspy")
    upstream.answers(answering("[[ ## answer ## ]]\nfour\n\n[[ ## completed ## ]]"))
    lm = dspy.LM("openai/big", api_base=gateway.url, api_key="none", cache=False, num_retries=0)
    with dspy.context(lm=lm):
        assert dspy.Predict("question -> answer")(question="2 + 2?").answer == "four"


@pytest.mark.filterwarnings("ignore")
def test_crewai(gateway, monkeypatch):
    for name in ("CREWAI_DISABLE_TELEMETRY", "CREWAI_DISABLE_TRACKING", "OTEL_SDK_DISABLED"):
        monkeypatch.setenv(name, "true")
    crewai = pytest.importorskip("crewai")
    llm = crewai.LLM(model="openai/big", base_url=gateway.url, api_key="none")
    assert llm.call("2 + 2?") == "four"
    agent = crewai.Agent(role="Counter", goal="Count.", backstory="You count.", llm=llm)
    assert agent.kickoff("2 + 2?").raw == "four"


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
