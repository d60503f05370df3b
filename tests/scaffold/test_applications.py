"""``vinelm init`` on the applications that people write: it calls nothing, and `vinelm check` accepts what it writes."""

import importlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest
from kit.openai_like import counting_server

import vinelm.template
from vinelm.cli.main import main
from vinelm.trie import Trie
from vinelm.trying import trial

HEAD = """
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypedDict
from kit.agent_packages import create_deep_agent, create_supervisor, create_swarm, hand_off
from kit.openai_like import ChatOpenAI
from langchain.agents import create_agent
from langchain_core.runnables import ConfigurableField, RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

class State(TypedDict, total=False):
    question: str
    draft: str
    answer: str

def lookup(order: str) -> str:
    "Looks an order up."
    if order != "A-1":
        raise ValueError(f"unknown order {order}")
    return "sent"

def one_node(name, function, schema=State):
    builder = StateGraph(schema)
    builder.add_node(name, function)
    builder.add_edge(START, name)
    return builder
"""
LLM = 'llm = ChatOpenAI(model="gpt-4o", temperature=0)\n'
WRITE = 'def write(state: State):\n    return {"answer": llm.invoke(state["question"]).text}\n'
GRAPH = f'{WRITE}graph = one_node("write", write).compile()\n'
AGENTS = 'a, b = (create_agent(llm, [lookup], name=name) for name in "ab")\n'
CLASS = """
class Bot:
    def __init__(self):
        self.llm = ChatOpenAI(model="gpt-4o")
        self.graph = one_node("write", self.write).compile()
    def write(self, state: State):
        return {"answer": self.llm.invoke(state["question"]).text}
"""
TWO_MODELS = """
class Bot:
    def __init__(self, size="gpt-4o", small="gpt-4o-mini"):
        self._llm, self.small = ChatOpenAI(model=size), ChatOpenAI(model=small)
    @property
    def llm(self):
        return self._llm
    def ask(self, text):
        return self.llm.invoke(text).text
    def write(self, state: State):
        return {"answer": self.ask(state["question"])}
    def check(self, state: State):
        return {"draft": self.small.invoke(state["answer"]).text}
    def build(self):
        builder = one_node("write", self.write)
        builder.add_node("check", self.check)
        builder.add_edge("write", "check")
        return builder.compile()
graph = Bot().build()
"""
GOTO = """
def boss(state: MessagesState) -> Command[Literal["worker", "__end__"]]:
    said = llm.invoke(state["messages"])
    return Command(goto="worker" if "worker" in said.text else END, update={"messages": [said]})
def worker(state: MessagesState) -> Command[Literal["boss"]]:
    return Command(goto="boss", update={"messages": [llm.invoke(state["messages"])]})
builder = one_node("boss", boss, MessagesState)
builder.add_node("worker", worker)
graph = builder.compile()
"""
TURNS = "how many turns does your loop take at most?"
ORDER = "in which order does"
TODAY = "which model runs today at"
APPS = {  # name: (source, what is named, stages, the questions that remain)
    "agent as a node": (
        f'{LLM}builder = one_node("helper", create_agent(llm, [lookup]), MessagesState)\ngraph = builder.compile()',
        "graph", ["model"], [TURNS],
    ),
    "an agent by the name of its model": (
        'import kit.openai_like\ngraph = create_deep_agent("openai:gpt-5", [lookup], subagents=['
        '{"name": "critic", "system_prompt": "criticise", "model": "openai:gpt-5-mini"}])',
        "graph", ["model", "tools/model", "SummarizationMiddleware.before_model"], [TURNS],
    ),
    "supervisor": (
        f"{LLM}{AGENTS}graph = create_supervisor([a, b], model=llm).compile()",
        "graph", ["supervisor/model", "a/model", "b/model"], [TURNS],
    ),
    "swarm": (
        f'{LLM}others = {{"a": "b", "b": "a"}}\n'
        "graph = create_swarm({name: create_agent(llm, [hand_off(other)]) for name, other in others.items()}).compile()",
        "graph", ["a/model", "b/model"], [TURNS],
    ),
    "subgraph": (
        f'{LLM}def last(state: State):\n    return {{"answer": llm.invoke("shorter").text}}\n{GRAPH}inner = graph\n'
        'builder = one_node("inner", inner)\nbuilder.add_node("last", last)\nbuilder.add_edge("inner", "last")\n'
        "graph = builder.compile()",
        "graph", ["write", "last"], [],
    ),
    "goto": (f"{LLM}{GOTO}", "graph", ["boss", "worker"], [TURNS]),
    "goto that does not say where": (
        LLM + GOTO.replace(' -> Command[Literal["worker", "__end__"]]', "").replace(' -> Command[Literal["boss"]]', ""),
        "graph", ["boss", "worker"], [TURNS],
    ),
    "a model on an edge": (
        f'{LLM}def search(state: State):\n    return {{"draft": "d"}}\n{WRITE}'
        'def grade(state: State) -> Literal["write", "search"]:\n'
        '    return "write" if "yes" in llm.invoke("?").text else "search"\n'
        'builder = one_node("search", search)\nbuilder.add_node("write", write)\n'
        'builder.add_conditional_edges("search", grade)\ngraph = builder.compile()',
        "graph", ["search", "write"], [TURNS],
    ),
    "an object of a class": (f"{CLASS}bot = Bot()", "bot", ["write"], []),
    "an object's graph": (f"{CLASS}bot = Bot()", "bot.graph", ["write"], []),
    "an object that is not named": (f"{CLASS}bot = Bot()", "", ["write"], []),
    "a class": (CLASS, "Bot", ["write"], []),
    "a class with two models": (TWO_MODELS, "graph", ["write", "check"], []),
    "cache": (
        '@cache\ndef model(size):\n    if size:\n        return ChatOpenAI(model="gpt-4o")\n'
        '    return ChatOpenAI(model="gpt-4o-mini")\n'
        + GRAPH.replace("llm.", "model(1)."),
        "graph", ["write"], [TODAY],
    ),
    "with_config": (LLM.strip() + f'.with_config(tags=["x"])\n{GRAPH}', "graph", ["write"], []),
    "configurable_fields": (
        LLM.strip() + '.configurable_fields(temperature=ConfigurableField(id="t"), model_name=ConfigurableField(id="m"))\n'
        + GRAPH, "graph", ["write"], [],
    ),
    "entrypoint": (
        f'{LLM}@task\ndef draft(text):\n    return llm.invoke(text).text\n'
        '@entrypoint()\ndef run(inputs: dict):\n    return {"answer": draft(inputs["question"]).result()}',
        "run", ["llm"], [ORDER],
    ),
    "a plain function": (
        f'{LLM}def run(question):\n    Path("ran").touch()\n    return llm.invoke(question).text', "run", ["llm"], [ORDER],
    ),
    "a plain function of nothing": (
        f'{LLM}def run():\n    Path("ran").touch()\n    return llm.invoke("hello").text', "run", ["llm"], [ORDER],
    ),
    "a factory that takes the config": (
        f'{LLM}{WRITE}def make(config):\n    config["configurable"]\n    return one_node("write", write).compile()',
        "make", ["write"], [],
    ),
    "a loop whose edge says nowhere where it leads": (
        f'{LLM}{WRITE}def again(state: State):\n    return "write" if "?" in state["answer"] else END\n'
        'builder = one_node("write", write)\nbuilder.add_conditional_edges("write", again)\ngraph = builder.compile()',
        "graph", ["write"], [TURNS],
    ),
    "a model that settings name": (
        'NAMES = {"small": "openai/gpt-4o-mini"}\n'
        'def model(size):\n    return ChatOpenAI(model=NAMES[size].partition("/")[2])\n'
        + GRAPH.replace("llm.", 'model("small").'),
        "graph", ["write"], [],
    ),
    "the openai SDK": (
        'from openai import AsyncOpenAI\nclient = AsyncOpenAI()\n'
        'async def run(question):\n    Path("ran").touch()\n'
        '    said = await client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": question}])\n'
        "    return said.choices[0].message.content",
        "run", ["client"], [ORDER],
    ),
    "nodes over the openai SDK": (
        'import openai\nclient = openai.OpenAI()\ndef write(state: State):\n'
        '    asked = [{"role": "user", "content": state["question"]}]\n'
        '    said = client.chat.completions.create(model="gpt-4o", messages=asked)\n'
        '    return {"answer": said.choices[0].message.content}\ngraph = one_node("write", write).compile()',
        "graph", ["write"], [],
    ),
    "a context and a store": (
        f'{LLM}@dataclass\nclass Context:\n    tone: str = "short"\n'
        'def write(state: State, runtime: Runtime[Context]):\n'
        '    runtime.store.put(("tones",), "last", {"tone": runtime.context.tone})\n'
        '    return {"answer": llm.invoke(state["question"]).text}\n'
        'builder = StateGraph(State, context_schema=Context)\nbuilder.add_node("write", write)\n'
        'builder.add_edge(START, "write")\ngraph = builder.compile()',
        "graph", ["write"], [],
    ),
    "a context that must be given": (
        f'{LLM}@dataclass\nclass Context:\n    tone: str\n{WRITE}builder = StateGraph(State, context_schema=Context)\n'
        'builder.add_node("write", write)\nbuilder.add_edge(START, "write")\ngraph = builder.compile()',
        "graph", ["write"], ["what is tone of the Context that the nodes are given?"],
    ),
    "a person who agrees": (
        f'{LLM}{WRITE}def ask(state: State):\n    said = interrupt({{"draft": state["answer"]}})\n'
        '    if said["type"] not in ("reject", "accept"):\n        raise ValueError(said)\n    return {"draft": said["type"]}\n'
        'builder = one_node("write", write)\nbuilder.add_node("ask", ask)\nbuilder.add_edge("write", "ask")\n'
        "graph = builder.compile(checkpointer=InMemorySaver())",
        "graph", ["write"], [],
    ),
    "a person who may say anything": (
        f'{LLM}{WRITE}def ask(state: State):\n    return {{"draft": interrupt("How is it?")}}\n'
        'builder = one_node("write", write)\nbuilder.add_node("ask", ask)\nbuilder.add_edge("write", "ask")\n'
        "graph = builder.compile(checkpointer=InMemorySaver())",
        "graph", ["write"], ["what would a person answer where ask waits?"],
    ),
    "a breakpoint": (
        f'{LLM}{WRITE}def last(state: State):\n    return {{"answer": llm.invoke(state["answer"]).text}}\n'
        'builder = one_node("write", write)\nbuilder.add_node("send", lambda state: {"draft": "sent"})\n'
        'builder.add_node("last", last)\nbuilder.add_edge("write", "send")\nbuilder.add_edge("send", "last")\n'
        'graph = builder.compile(checkpointer=InMemorySaver(), interrupt_before=["send"])',
        "graph", ["write", "last"], [],
    ),
    "a node that calls its model for each part": (
        f'{LLM}def write(state: State):\n    parts = [llm.invoke(part).text for part in state["question"].split()]\n'
        '    return {"answer": parts[-1]}\ngraph = one_node("write", write).compile()',
        "graph", ["write"], [],
    ),
    "a node that makes its agent when it runs": (
        f'from langchain.agents import create_agent\n{LLM}def write(state: State):\n'
        '    said = create_agent(llm, tools=[lookup]).invoke({"messages": [("user", state["question"])]})\n'
        '    return {"answer": said["messages"][-1].text}\ngraph = one_node("write", write).compile()',
        "graph", ["write"], [],
    ),
    "a node whose class makes a graph": (
        f'{LLM}class Helper:\n    def find(self, state: State):\n        return {{"draft": self.asked(state["question"])}}\n'
        '    def asked(self, text):\n        return llm.invoke(text).text\n'
        'class Editor:\n    def write(self, state: State):\n        return {"answer": self._made().invoke(state)["draft"]}\n'
        '    def _made(self):\n        return one_node("find", Helper().find).compile()\n'
        'graph = one_node("write", Editor().write).compile()',
        "graph", ["write"], [],
    ),
    "tools with a fallback": (
        f'{LLM}bound = llm.bind_tools([lookup])\n'
        'def ask(state: MessagesState):\n    return {"messages": [bound.invoke(state["messages"])]}\n'
        'def sorry(state):\n    return {"messages": [("ai", "sorry")]}\nbuilder = one_node("ask", ask, MessagesState)\n'
        'tools = ToolNode([lookup]).with_fallbacks([RunnableLambda(sorry)], exception_key="error")\n'
        'builder.add_node("tools", tools)\nbuilder.add_conditional_edges("ask", tools_condition)\n'
        'builder.add_edge("tools", "ask")\ngraph = builder.compile()',
        "graph", ["ask"], [TURNS],
    ),
    "a forced tool that finds nothing": (
        f'{LLM}def find(order: str) -> str:\n    "Finds an order."\n    return {{"A-1": ["sent"]}}.get(order)[0]\n'
        'def ask(state: MessagesState):\n    model = llm.bind_tools([find], tool_choice="any")\n'
        '    return {"messages": [model.invoke(state["messages"])]}\nbuilder = one_node("ask", ask, MessagesState)\n'
        'builder.add_node("tools", ToolNode([find]))\nbuilder.add_edge("ask", "tools")\ngraph = builder.compile()',
        "graph", ["ask"], [],
    ),
    "stages side by side that are called by the alphabet": (
        f'{LLM}{WRITE}def end(state: State):\n    return {{"draft": "both"}}\n'
        'def tax(state: State):\n    llm.invoke("tax")\ndef law(state: State):\n    llm.invoke("law")\n'
        'builder = one_node("write", write)\nfor node in (tax, law, end):\n    builder.add_node(node.__name__, node)\n'
        'for node in ("tax", "law"):\n    builder.add_edge("write", node)\nbuilder.add_edge(["tax", "law"], "end")\n'
        "graph = builder.compile(checkpointer=InMemorySaver())",
        "graph", ["write", "tax", "law"], [],
    ),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder in which commands run; what they import is forgotten afterwards, and no model's server is asked anything."""
    rows = [{"id": f"q{n}", "question": f"{n} + 1?", "answer": str(n + 1)} for n in range(12)]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    forget(tmp_path)
    with counting_server() as (url, seen):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        yield tmp_path
        assert seen == []
    forget(tmp_path)


def forget(folder):
    """What a new process would not have imported."""
    for name in ("workflow", "app_of_init"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def init(folder, capsys, source, name, *more):
    (folder / "app_of_init.py").write_text(HEAD + source + "\n")
    code = main(["init", f"app_of_init.py:{name}".rstrip(":"), "--dataset", "q.jsonl", *more])
    said = capsys.readouterr()
    forget(folder)
    return json.loads(said.out) if code == 0 else said.err


@pytest.fixture(autouse=True)
def fresh_makers():
    """LangChain remembers the class of a provider's package, which a test here replaces."""
    from langchain.chat_models import base

    yield
    for kept in (one for one in vars(base).values() if hasattr(one, "cache_clear")):
        kept.cache_clear()


@pytest.mark.parametrize("kind", APPS)
def test_an_application_is_read_without_a_call_and_checked(folder, capsys, kind, monkeypatch):
    if "by the name" in kind:  # what init_chat_model would import
        importlib.import_module("vinelm.backends.openai.compatible")  # which has the package itself
        monkeypatch.setitem(sys.modules, "langchain_openai", importlib.import_module("kit.openai_like"))
    source, name, stages, questions = APPS[kind]
    found = init(folder, capsys, source, name, "--apply", "--json")
    assert isinstance(found, dict), found
    assert found["stages"] == stages
    assert len(found["todo"]) == len(questions)
    assert all(any(question in todo["text"] for todo in found["todo"]) for question in questions)
    assert not (folder / "ran").exists()
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Ready." in said
    assert TODAY not in said  # the models say it when the script calls them
    assert ("the application says what runs today: write Stage(" in said) == (TODAY in questions)


def test_a_node_that_calls_models_only_in_tools_may_call_none(folder, capsys):
    """Each request on which no tool asked a model was a failure of the template."""
    source = (
        f"from langchain_core.tools import tool\n{LLM}@tool\ndef shorten(text: str) -> str:\n    'Shortens.'\n"
        "    return llm.invoke(text).text if len(text) > 9 else text\n"
        "def ask(state: MessagesState):\n    return {'messages': [llm.bind_tools([shorten]).invoke(state['messages'])]}\n"
        "def act(state: MessagesState):\n"
        "    return {'messages': [shorten.invoke(call) for call in state['messages'][-1].tool_calls]}\n"
        "def last(state: MessagesState):\n    return {'messages': [llm.invoke(state['messages'])]}\n"
        "builder = one_node('ask', ask, MessagesState)\nfor node in (act, last):\n    builder.add_node(node.__name__, node)\n"
        "builder.add_edge('ask', 'act')\nbuilder.add_edge('act', 'last')\ngraph = builder.compile()"
    )
    assert init(folder, capsys, source, "graph", "--apply", "--json")["stages"] == ["ask", "act", "last"]
    namespace = {}
    text = (folder / "workflow.py").read_text(encoding="utf-8")
    exec(text[text.index("template = ") : text.index("def build")], vars(vinelm.template), namespace)
    assert namespace["template"].flow.follows >= {("ask", "act"), ("ask", "last"), ("act", "last")}


def test_the_line_stays_and_todays_model_is_in_the_catalog(folder, capsys):
    settings = 'temperature=0.3, max_retries=7, streaming=True, top_p=0.9, model_kwargs={"user": "me"}'
    model = f'ChatOpenAI(model="gpt-4o", {settings})'
    found = init(folder, capsys, f"llm = {model}\n{GRAPH}", "graph", "--apply", "--json")
    assert f"llm = vine.around({model})\n" in (folder / "app_of_init.py").read_text()
    catalog = (folder / "models.toml").read_text()
    assert catalog.count("api_base = ") == catalog.count("[[model]]")
    assert "max_retries" not in catalog
    assert "top_p" not in catalog
    assert found["today"] == {"write": "gpt-4o"}
    assert 'Stage("write", default="gpt-4o")' in (folder / "workflow.py").read_text()


def test_an_application_that_is_wrapped_is_read_again_with_its_models(folder, capsys):
    first = init(folder, capsys, TWO_MODELS, "graph", "--apply", "--json")
    text = (folder / "app_of_init.py").read_text()
    assert main(["init", "app_of_init.py:graph", "--dataset", "q.jsonl", "--apply", "--json", "--force"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["today"], again["to_change"], again["edited"]) == (first["today"], [], [])
    assert (folder / "app_of_init.py").read_text() == text


def test_todays_model_is_that_which_a_nodes_own_code_reads(folder, capsys):
    found = init(folder, capsys, TWO_MODELS, "graph", "--apply", "--json")
    assert found["today"] == {"write": "gpt-4o", "check": "gpt-4o-mini"}
    anything = TWO_MODELS.replace("self.small.invoke", 'getattr(self, "small").invoke')
    assert "check" not in init(folder, capsys, anything, "graph", "--apply", "--json", "--force")["today"]


def test_todays_model_is_that_which_a_node_asks_a_function_for(folder, capsys):
    maker = "@cache\ndef make(name):\n    return ChatOpenAI(model=name)\n"
    asked = 'make(config.get("configurable", {}).get("model", "gpt-4o")).'
    source = maker + GRAPH.replace("llm.", asked).replace("state: State", "state: State, config: RunnableConfig")
    assert init(folder, capsys, source, "graph", "--apply", "--json")["today"] == {"write": "gpt-4o"}


def test_check_names_a_model_of_today_that_only_the_environment_knows(folder, capsys, monkeypatch):
    source = 'import os\ndef make():\n    return ChatOpenAI(model=os.environ["A_MODEL"])\n' + GRAPH.replace("llm.", "make().")
    monkeypatch.setenv("A_MODEL", "gpt-4o")
    line = ("--models", "openai:gpt-4o-mini,openai:gpt-5", "--apply", "--json")
    assert "write" in init(folder, capsys, source, "graph", *line)["asked_today"]
    check = ["check", "workflow:workflow", "--models", "models.toml", "--json"]
    assert main(check) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "today: write runs gpt-4o today, which the catalog lacks: add an entry for it" in said
    forget(folder)
    monkeypatch.setenv("A_MODEL", "gpt-5")
    assert main(check) == 0
    assert json.loads(capsys.readouterr().out)["today"] == {"write": "gpt-5"}


def test_a_model_of_today_that_the_application_does_not_run_is_worth_a_look(folder, capsys):
    init(folder, capsys, LLM + GRAPH, "graph", "--models", "openai:gpt-4o,openai:gpt-5", "--apply", "--json")
    text = (folder / "workflow.py").read_text(encoding="utf-8")
    (folder / "workflow.py").write_text(text.replace('default="gpt-4o"', 'default="gpt-5"'), encoding="utf-8")
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "look today: write is said to run gpt-5 today, and the application made it with gpt-4o" in said


@pytest.mark.parametrize("second", ["gpt-4o", "gpt-4o-mini"])
def test_todays_model_of_a_client_is_that_which_all_of_its_calls_name(folder, capsys, second):
    asked = "client.chat.completions.create(model={}, messages=[]).choices[0].message.content"
    source = (
        "from openai import OpenAI\nclient = OpenAI()\ndef run(question):\n"
        f"    draft = {asked.format(repr('gpt-4o'))}\n    return {asked.format(repr(second))}"
    )
    found = init(folder, capsys, source, "run", "--apply", "--json")
    assert found["today"] == ({"client": "gpt-4o"} if second == "gpt-4o" else {})


def test_todays_model_that_a_catalog_lacks_is_asked_for(folder, capsys):
    found = init(folder, capsys, LLM + GRAPH, "graph", "--models", "anthropic:claude-haiku-4-5", "--json")
    assert found["today"] == {}
    assert "at write (openai:gpt-4o, which models.toml lacks)?" in found["todo"][0]["text"]


def test_a_function_that_answers_a_request_may_build_and_run_a_graph_for_it(folder, capsys):
    (folder / "qa.jsonl").write_text("".join(f'{{"ticker": "T{n}", "action": "buy"}}\n' for n in range(3)))
    source = f"{LLM}{GRAPH}import json\ndef trade(ticker, size=1):\n    made = one_node('write', lambda state: state)\n"
    source += "    return json.loads(graph.invoke({'question': ticker})['answer'])"
    init(folder, capsys, source, "trade", "--dataset", "qa.jsonl", "--label-field", "action", "--apply", "--yes", "--json")
    text = (folder / "workflow.py").read_text(encoding="utf-8")
    assert "found = trade(**inputs)" in text
    assert 'return {"ticker": request.data["ticker"]}' in text
    assert 'return str(state.get("action", state.get("answer", ""))).strip()' in text
    maker = f'{LLM}{GRAPH}def make(config):\n    llm.invoke("?")\n    return graph'
    said = init(folder, capsys, maker, "make", "--yes", "--force")
    assert "builds a graph and runs it: name the graph" in said


@pytest.mark.parametrize(
    ("source", "name", "words"),
    [
        (f'{LLM}{GRAPH}print(graph.invoke({{"question": "?"}}))', "graph", "calls a model (at app_of_init.py:"),
        (f'{LLM}{GRAPH}def make():\n    llm.invoke("?")\n    return graph', "make", "builds a graph and runs it: name the"),
        ('graph = one_node("write", lambda state: {"answer": "4"}).compile()', "graph", "none of its nodes (write) calls"),
        (f"{LLM}class Bot:\n    pass\nbot = Bot()", "bot", "none of its attributes is one: name the"),
        (f"{CLASS}bot = Bot()", "bot.grph", "has no attribute 'grph'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_line(folder, capsys, source, name, words):
    said = init(folder, capsys, source, name, "--yes")
    assert said.count("\n") == 1
    assert words in said
    assert not (folder / "workflow.py").exists()


STRUCTURED = """
from pydantic import BaseModel
from langchain.agents.structured_output import ToolStrategy
class Reply(BaseModel):
    "The reply."
    reasoning: str
    answer: str
agent = create_agent(llm, [lookup], response_format=ToolStrategy(Reply))
"""
FORCED = """
from langchain_core.tools import tool
@tool
def reply(answer: str) -> str:
    "Gives the reply."
    return answer
forced = llm.bind_tools([reply], tool_choice="reply")
graph = one_node("write", lambda state: {"messages": [forced.invoke(state["messages"])]}, MessagesState).compile()
"""


@pytest.mark.parametrize(("source", "name"), [(STRUCTURED, "agent"), (FORCED, "graph")], ids=["response_format", "forced tool"])
def test_the_answer_is_read_where_the_application_puts_it(folder, capsys, source, name):
    found = init(folder, capsys, LLM + source, name, "--label-field", "answer", "--apply", "--json")
    assert isinstance(found, dict), found
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "it calls the scripted answer right" in said


def test_a_check_says_where_the_label_is_if_the_scorer_reads_elsewhere(folder, capsys):
    init(folder, capsys, LLM + STRUCTURED, "agent", "--label-field", "answer", "--apply", "--json")
    text = (folder / "workflow.py").read_text(encoding="utf-8")
    (folder / "workflow.py").write_text(text.replace('fields.get("answer"', 'fields.get("reasoning "'), encoding="utf-8")
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "look scorer: calls the scripted answer wrong" in said
    assert "the final state has that in structured_response." in said


IN_A_DICT = """
class Found(TypedDict, total=False):
    question: str
    info: dict
def research(state: Found):
    said = llm.invoke(state["question"]).text
    return {"info": {"answer": said, "why": said}}
graph = one_node("research", research, Found).compile()
"""


@pytest.mark.parametrize("is_decided", [False, True])
def test_a_trial_reads_the_answer_where_the_label_comes_back(folder, capsys, is_decided):
    """It bought thirty answers, all of them wrong, and asked then where the answer is."""
    init(folder, capsys, LLM + IN_A_DICT, "graph", "--label-field", "answer", "--apply", "--json")
    file = folder / "workflow.py"
    text = file.read_text(encoding="utf-8")
    assert "TODO: return the answer from the final state" in text
    if is_decided:
        file.write_text(text.replace("    # TODO: return the answer", "    # Return the answer"), encoding="utf-8")
    notes = []
    trial._checked(notes.append)
    forget(folder)
    assert any("reads the answer there" in one for one in notes) != is_decided
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ("it calls the scripted answer right" in said) != is_decided


def test_a_model_that_runs_today_everywhere_is_said_once(folder, capsys):
    source = 'import os\ndef make():\n    return ChatOpenAI(model=os.environ["A_MODEL"])\n' + (
        'def write(state: State):\n    return {"answer": make().invoke(state["question"]).text}\n'
        'graph = one_node("write", write).compile()\n'
    )
    line = ("--models", "openai:gpt-4o,openai:gpt-4o-mini", "--apply", "--json")
    asked = init(folder, capsys, source, "graph", *line, "--dry-run")
    assert len(asked["asked_today"]) == 1
    assert not asked["is_written"]
    assert not (folder / "workflow.py").exists()
    found = init(folder, capsys, source, "graph", *line, "--today", "openai:gpt-4o")
    assert (found["today"], found["asked_today"]) == ({"write": "gpt-4o"}, [])


SUBCLASS = """
from langgraph.graph.state import CompiledStateGraph
def write(state: State):
    return {"answer": llm.invoke(state["question"]).text}
class Wrapper(CompiledStateGraph):
    "A graph by its class, whose constructor takes arguments of its own."
    def __init__(self, **params):
        self._params = params
        self._inner = one_node("write", write).compile()
    def invoke(self, input, config=None, **kwargs):
        return self._inner.invoke(input, config, **kwargs)
    def __getattr__(self, name):
        return getattr(self._inner, name)
class Tagged(CompiledStateGraph):
    "A graph of its own with a setting more."
    def __init__(self, graph, tag):
        self.__dict__.update(vars(graph))
        self.tag = tag
wrapper = Wrapper(a=1)
tagged = Tagged(one_node("write", write).compile(), "x")
class Workflow:
    def __init__(self):
        self.graph = one_node("write", write).compile()
"""


@pytest.mark.parametrize("name", ["wrapper", "tagged", "Workflow"])
def test_subclasses_of_graphs_and_names_that_are_also_ours_are_read_and_checked(folder, capsys, name):
    found = init(folder, capsys, LLM + SUBCLASS, name, "--apply", "--json")
    assert isinstance(found, dict), found
    assert found["stages"] == ["write"]
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "it calls the scripted answer right" in " ".join(capsys.readouterr().out.split())


def test_an_application_in_src_has_its_project_where_it_is_run(folder, capsys):
    (folder / "src").mkdir()
    source = f'{LLM}assert Path("q.jsonl").exists()\n{GRAPH}'
    (folder / "src" / "app_of_init.py").write_text(HEAD + source)
    assert main(["init", "src/app_of_init.py:graph", "--dataset", "q.jsonl", "--apply", "--yes"]) == 0
    assert (folder / "workflow.py").exists()
    forget(folder)
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0


def test_a_graph_that_a_node_calls_is_run_from_the_start(folder, capsys):
    source = f"{LLM}{WRITE}inner = one_node('write', write).compile()\n" + (
        "def research(state: State):\n    return {'answer': inner.invoke({'question': state['question']})['answer']}\n"
        "graph = one_node('research', research).compile()\n"
    )
    found = init(folder, capsys, source, "graph", "--apply", "--json")
    assert isinstance(found, dict), found
    assert "replay=True," in (folder / "workflow.py").read_text(encoding="utf-8")
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0


MADE_IN_A_NODE = """
def make():
    return ChatOpenAI(model="gpt-4o")
def search(state: State):
    return {"draft": make().invoke(state["question"]).text}
searcher = one_node("search", search).compile()
def research(state: State):
    return {"draft": searcher.invoke({"question": state["question"]})["draft"]}
def write(state: State):
    return {"answer": make().invoke(state["draft"]).text}
builder = one_node("research", research)
builder.add_node("write", write)
builder.add_edge("research", "write")
graph = builder.compile()
"""


def test_stages_of_a_graph_called_in_a_node_are_in_the_template_wherever_their_models_are_made(folder, capsys):
    found = init(folder, capsys, MADE_IN_A_NODE, "graph", "--apply", "--json")
    assert isinstance(found, dict), found
    assert (found["stages"], found["today"]) == (["search", "write"], {"search": "gpt-4o", "write": "gpt-4o"})
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0


MODELS_OF_A_CLASS = """
class Models:
    def __init__(self):
        big, self.small = ChatOpenAI(model="gpt-4o"), ChatOpenAI(model="gpt-4o-mini")
        self.writer = RunnableLambda(str) | big
    def rate(self, text):
        return self.small.invoke(text).text
class Nodes:
    def __init__(self):
        self.models = Models()
    def write(self, state: State):
        return {"draft": self.models.writer.invoke(state["question"]).text}
    def check(self, state: State):
        return {"answer": self.models.rate(state["draft"])}
models = Models()
def write(state: State):
    return {"draft": models.writer.invoke(state["question"]).text}
def check(state: State):
    return {"answer": models.rate(state["draft"])}
def drawn(write, check):
    builder = one_node("write", write)
    builder.add_node("check", check)
    builder.add_edge("write", "check")
    return builder.compile()
of_methods, of_functions = drawn(Nodes().write, Nodes().check), drawn(write, check)
"""


@pytest.mark.parametrize("name", ["of_methods", "of_functions"])
def test_todays_model_is_that_which_a_node_uses_of_an_object_that_holds_several(folder, capsys, name):
    found = init(folder, capsys, MODELS_OF_A_CLASS, name, "--apply", "--json")
    assert isinstance(found, dict), found
    assert found["today"] == {"write": "gpt-4o", "check": "gpt-4o-mini"}
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0


@pytest.mark.parametrize("used", ["pick(models)", 'getattr(models, "writer")', "(lambda any_of: any_of.writer)(models)"])
def test_an_object_that_is_used_whole_may_use_any_of_its_models(folder, capsys, used):
    helper = "def pick(of):\n    return of.writer\n"
    source = helper + MODELS_OF_A_CLASS.replace(": models.writer.invoke", f": {used}.invoke")
    found = init(folder, capsys, source, "of_functions", "--apply", "--json")
    assert found["stages"] == ["write", "check"]
    assert found["today"] == {"check": "gpt-4o-mini"}


SIDE_BY_SIDE = """
from langchain_core.messages import AIMessage
from langchain_core.prompts import PromptTemplate
import json, operator
from typing import Annotated
class Facts(TypedDict):
    messages: Annotated[list, operator.add]
    data: Annotated[dict, lambda old, new: {**old, **new}]
def ask(state, style):
    item = state["data"]
    prompt = PromptTemplate.from_template("{style}: {question}")
    for attempt in range(3):
        try:
            return llm.invoke(prompt.invoke({"style": style, "question": item["question"]})).text
        except ValueError:
            pass
def bold(state: Facts):
    return {"data": {"bold": ask(state, "bold")}}
def careful(state: Facts):
    return {"data": {"careful": ask(state, "careful")}}
def limits(state: Facts):
    return {"data": {"limit": 5}}
def manager(state: Facts):
    answer = ask(state, f"{state['data']['bold']} {state['data']['careful']} {state['data']['limit']}")
    return {"messages": [AIMessage(json.dumps({"answer": answer}))]}
builder = StateGraph(Facts)
builder.add_node("begin", lambda state: {})
for node in (bold, careful, limits, manager):
    builder.add_node(node.__name__, node)
builder.add_edge(START, "begin")
for name in ("bold", "careful"):
    builder.add_edge("begin", name)
    builder.add_edge(name, "limits")
builder.add_edge("limits", "manager")
builder.add_edge("manager", END)
graph = builder.compile()
"""


def test_analysts_side_by_side_a_node_without_a_model_and_a_manager(folder, capsys):
    found = init(folder, capsys, LLM + SIDE_BY_SIDE, "graph", "--apply", "--json")
    assert isinstance(found, dict), found
    written = (folder / "workflow.py").read_text(encoding="utf-8")
    assert found["stages"] == ["bold", "careful", "manager"]
    assert "Parallel(" in written
    assert "Loop(" not in written
    assert '{"data": {"question": request.data["question"]}}' in written
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "it calls the scripted answer right" in " ".join(capsys.readouterr().out.split())


def test_stages_that_start_together_and_perhaps_call_several_times_have_a_template(folder, capsys):
    twice = "def bold(state: Facts):\n    found = RunnableLambda(str)\n    found.invoke(1)\n"  # which might be a model
    source = LLM + SIDE_BY_SIDE.replace("def bold(state: Facts):\n", twice)
    assert isinstance(found := init(folder, capsys, source, "graph", "--apply", "--json"), dict), found
    assert found["stages"] == ["bold", "careful", "manager"]
    written = (folder / "workflow.py").read_text(encoding="utf-8")
    assert "Parallel(" in written
    assert "replay=True," in written
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0


OBJECTS = """
from dataclasses import dataclass
@dataclass
class Mail:
    body: str
    sender: str = ""
class Inbox(TypedDict):
    mails: list[Mail]
    generated_reply: str
def write(state: Inbox):
    mails = [one if isinstance(one, Mail) else Mail(**one) for one in state["mails"]]
    return {"generated_reply": llm.invoke(mails[-1].body).text}
graph = one_node("write", write, Inbox).compile()
"""


def test_an_input_that_holds_a_list_of_objects_gets_the_column_as_their_field(folder, capsys):
    rows = [{"id": f"q{n}", "mail_body": f"{n} + 1?", "reply": str(n + 1)} for n in range(12)]
    (folder / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = init(folder, capsys, LLM + OBJECTS, "graph", "--label-field", "reply", "--apply", "--json")
    assert isinstance(found, dict), found
    written = (folder / "workflow.py").read_text(encoding="utf-8")
    assert '{"mails": [{"body": request.data["mail_body"]}]}' in written
    assert {todo["text"].partition("?")[0] for todo in found["todo"]} == {
        "is this the key with the answer", "is this what the graph is invoked with",
    }  # fmt: skip
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "it calls the scripted answer right" in " ".join(capsys.readouterr().out.split())


def test_what_code_reads_of_an_input_and_no_column_has_is_asked_for(folder, capsys):
    source = SIDE_BY_SIDE.replace('item["question"]})', 'item["question"] + item["currency"]})')
    found = init(folder, capsys, LLM + source, "graph", "--apply", "--json")
    assert any("give currency of data, too" in todo["text"] for todo in found["todo"])


def test_what_no_column_has_is_taken_from_the_applications_one_dict_that_has_it(folder, capsys):
    source = SIDE_BY_SIDE.replace('item["question"]})', 'item["question"] + item["currency"]})')
    found = init(folder, capsys, LLM + source + 'TASK = {"currency": "EUR", "unit": "m"}\n', "graph", "--apply", "--json")
    assert isinstance(found, dict), found
    assert not any("give currency" in todo["text"] for todo in found["todo"])
    assert '{"data": {**TASK, "question": request.data["question"]}}' in (folder / "workflow.py").read_text(encoding="utf-8")
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0


SUMMARISED = """
from langchain.agents.middleware import ModelFallbackMiddleware, SummarizationMiddleware
small = ChatOpenAI(model="gpt-4o-mini")
summaries = SummarizationMiddleware(model=small, trigger=("messages", 1), keep=("messages", 1))
def find(query: str) -> str:
    "Finds a fact."
    return "The answer is 42."
graph = create_agent(llm, [find], middleware=[summaries, ModelFallbackMiddleware(small)])
"""


def test_the_model_inside_a_prebuilt_middleware_is_a_stage_that_runs_when_there_is_need(folder, capsys):
    found = init(folder, capsys, LLM + SUMMARISED, "graph", "--apply", "--json")
    assert isinstance(found, dict), found
    hook = "SummarizationMiddleware.before_model"
    assert found["today"] == {"model": "gpt-4o", hook: "gpt-4o-mini"}
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "up to 3 times" in said  # each turn runs the model, behind a summary or not: not any of the two up to 6 times
    assert f"model > {hook} > model, each from a checkpoint" in said


@pytest.mark.parametrize("file", ["01-app.py", "class.py"])
def test_a_file_whose_name_no_import_statement_can_say_is_read_and_checked(folder, capsys, file):
    context = "@dataclass\nclass Words:\n    most: int = 3\n"
    source = f"{HEAD}{LLM}{context}{WRITE}builder = StateGraph(State, context_schema=Words)\nbuilder.add_node('write', write)\n"
    source += "builder.add_edge(START, 'write')\nworkflow = builder.compile()\n"
    (folder / file).write_text(source)
    assert main(["init", file, "--dataset", "q.jsonl", "--apply"]) == 0
    forget(folder)
    sys.modules.pop(file.removesuffix(".py"))
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out
    sys.modules.pop(file.removesuffix(".py"))
    (folder / "01.app.py").write_text(source)
    assert main(["init", "01.app.py", "--dataset", "q.jsonl"]) == 2
    assert "cannot import a file with a dot in its name: rename it" in capsys.readouterr().err


MAIN = "def main():\n    app = create_app()\n    print(app)\n"
MAKER = f'{LLM}{WRITE}def create_app():\n    return one_node("write", write).compile()\n{MAIN}'
NESTED = f'{LLM}{WRITE}inner = one_node("write", write).compile()\ndef call(state: State):\n    return inner.invoke(state)\n'


@pytest.mark.parametrize(
    "source",
    [
        MAKER,
        f"{MAKER}def show(graph):\n    return graph\ndef run_graph():\n    return create_app().invoke({{}})\n",
        CLASS,
        f'{NESTED}whole = one_node("all", inner).compile()',
        f'{NESTED}whole = one_node("all", call).compile()',
    ],
    ids=["a function", "a function among others", "a class", "a graph as a node", "a graph that a node calls"],
)  # fmt: skip
def test_the_one_graph_of_a_file_needs_no_name(folder, capsys, source):
    found = init(folder, capsys, source, "", "--apply", "--json")
    assert isinstance(found, dict), found
    assert [stage.split("/")[-1].split(">")[-1].strip() for stage in found["stages"]] == ["write"]


LATE = """
class Service:
    def __init__(self):
        self._graph = None
    async def create_graph(self):
        if self._graph is None:
            self._graph = one_node("write", write).compile()
        return self._graph
    async def reply(self, question):
        return (await (await self.create_graph()).ainvoke({"question": question}))["answer"]
"""


@pytest.mark.parametrize("name", ["", "Service", "service"])
def test_an_object_whose_method_makes_the_graph_late(folder, capsys, name):
    found = init(
        folder, capsys, f"{LLM}{WRITE}{LATE}{'service = Service()' if name == 'service' else ''}", name, "--apply", "--json"
    )
    assert isinstance(found, dict), found
    assert found["stages"] == ["write"]
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out


def test_a_function_of_plain_data_answers_a_request_wherever_its_graph_runs(folder, capsys):
    source = (
        f"{LLM}{WRITE}graph = one_node('write', write).compile()\n"
        "def run(text):\n    return graph.invoke({'question': text})\n"
        "def reply(question: str) -> str:\n    return run(question)['answer']\n"
    )
    found = init(folder, capsys, source, "reply", "--apply", "--json")
    assert isinstance(found, dict), found
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out


ANSWERING = "async def reply(question: str, loud: bool = False) -> dict:\n    return {'answer': llm.invoke(question).text}\n"


def test_the_one_function_of_plain_data_needs_no_name(folder, capsys):
    other = ANSWERING.replace("reply", "summary")
    assert "name the function that returns it: it has reply, summary" in init(folder, capsys, LLM + ANSWERING + other, "")
    found = init(folder, capsys, LLM + ANSWERING, "", "--apply", "--json")  # HEAD has a tool, which calls no model
    assert isinstance(found, dict), found
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out


RESULTS = {
    "dataclass": "@dataclass(frozen=True)\nclass Result:\n    question: str\n    answer: str\n",
    "model": "class Result(BaseModel):\n    question: str\n    answer: str\n",
}


@pytest.mark.parametrize("kind", RESULTS)
def test_a_function_may_return_an_object_with_the_answer_in_a_field(folder, capsys, kind):
    source = (
        f"from dataclasses import dataclass\nfrom pydantic import BaseModel\n{LLM}{RESULTS[kind]}"
        "def reply(question: str) -> Result:\n    return Result(question=question, answer=llm.invoke(question).text)\n"
    )
    found = init(folder, capsys, source, "reply", "--apply", "--json")
    assert isinstance(found, dict), found
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    said = capsys.readouterr().out
    assert "Ready." in said
    assert "is that the answer?" not in said


def test_functions_that_make_graphs_are_named_if_there_are_several(folder, capsys):
    other = 'def small_app():\n    return one_node("small", write).compile()\n'
    said = init(folder, capsys, MAKER + other, "", "--yes")
    assert "name the function that returns it: it has create_app, small_app (" in said


@pytest.mark.parametrize(
    ("state", "is_object"),
    [
        ("messages: Annotated[Sequence[BaseMessage], operator.add]", True),
        ("messages: list[AnyMessage]", True),
        ("messages: Annotated[list[AnyMessage], add_messages]", False),
        ("messages: Annotated[list[dict], operator.add]", False),
    ],
)
def test_messages_are_objects_if_nothing_in_the_graph_makes_them_of_dicts(folder, capsys, state, is_object):
    read = "[-1].content" if "dict" not in state else '[-1]["content"]'
    source = (
        "import operator\nfrom collections.abc import Sequence\nfrom typing import Annotated\n"
        "from langchain_core.messages import AnyMessage, BaseMessage\nfrom langgraph.graph.message import add_messages\n"
        f"{LLM}class Chat(TypedDict, total=False):\n    {state}\n    answer: str\n"
        f'def write(state: Chat):\n    return {{"answer": llm.invoke(state["messages"]{read}).text}}\n'
        'graph = one_node("write", write, Chat).compile()\n'
    )
    assert isinstance(init(folder, capsys, source, "graph", "--apply", "--json"), dict)
    assert ("HumanMessage(request.data" in (folder / "workflow.py").read_text(encoding="utf-8")) == is_object
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out


def test_a_model_without_a_list_price_needs_a_catalog_first(folder, capsys):
    source = f'{LLM}llm.model_name = "my-own-llm"\n{GRAPH}'
    said = init(folder, capsys, source, "graph", "--yes")
    assert "openai:my-own-llm has no list price: write models.toml first, with an entry and a price for each model" in said
    assert not (folder / "workflow.py").exists()


@pytest.mark.parametrize("place", [".", "core"])
def test_an_application_in_a_workflow_py_of_its_own_keeps_it(folder, capsys, monkeypatch, place):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))  # for the process that changes the application
    (folder / place).mkdir(exist_ok=True)
    file = folder / place / "workflow.py"
    file.write_text(f"{HEAD}{LLM}{WRITE}workflow = one_node('write', write).compile()\n")
    at = "workflow.py" if place == "." else "core/workflow.py"
    assert main(["try", at, "--dataset", "q.jsonl", "--apply", "--budget-usd", "1", "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "No model was called and nothing was written." in " ".join(said.out.split())
    assert main(["init", at, "--dataset", "q.jsonl", "--apply"]) == 0
    assert "vinelm check vinelm_workflow:workflow" in capsys.readouterr().out
    assert "vine.around(" in file.read_text(encoding="utf-8")
    assert "from workflow import workflow as app" in (folder / place / "vinelm_workflow.py").read_text(encoding="utf-8")
    assert main(["init", at, "--dataset", "q.jsonl"]) == 2
    assert "vinelm_workflow.py: exists already" in capsys.readouterr().err


def test_a_folder_without_a_package_file_whose_modules_import_each_other_is_a_package(folder, capsys):
    (folder / "src" / "nodes").mkdir(parents=True)
    (folder / "src" / "models.py").write_text(f"from kit.openai_like import ChatOpenAI\n{LLM}")
    (folder / "src" / "nodes" / "writing.py").write_text(
        "from ..models import llm\ndef write(state):\n    return {'answer': llm.invoke(state['question']).text}\n"
    )
    (folder / "src" / "graph.py").write_text(
        f"{HEAD}from .nodes.writing import write\ngraph = one_node('write', write).compile()\n"
    )
    assert main(["init", "src/graph.py", "--dataset", "q.jsonl", "--apply"]) == 0
    assert "write gpt-4o" in capsys.readouterr().out
    forget(folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "src"]:
        sys.modules.pop(name)
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out


def test_a_class_that_a_variable_of_the_function_holds_makes_the_model(folder, capsys):
    source = (
        "def make(size):\n    kind = ChatOpenAI\n    settings = {'model': size}\n    return kind(**settings)\n"
        f"llm = make('gpt-4o')\nEMBEDDINGS = 'openai/text-embedding-3-small'\n{GRAPH}"
    )
    found = init(folder, capsys, source, "graph", "--apply", "--json")
    assert isinstance(found, dict), found
    assert found["models_today"] == ["openai:gpt-4o"]
    assert "return vine.around(kind(**settings))" in (folder / "app_of_init.py").read_text(encoding="utf-8")
    assert "embedding" not in (folder / "models.toml").read_text(encoding="utf-8")


SKIPS = """
import logging
log = logging.getLogger()
def is_long(text):
    return len(text.split()) > 300
def write(state: State):
    return {"draft": llm.invoke(state["question"]).text}
def check(state: State):
BODY
def final(state: State):
    return {"answer": llm.invoke(state["draft"]).text}
builder = one_node("write", write)
builder.add_node("check", check)
builder.add_node("final", final)
builder.add_edge("write", "check")
builder.add_edge("check", "final")
graph = builder.compile()
"""


EARLY_RETURN = """
    if not is_long(state["draft"]):
        log.info("short")
        return {}
    return {"draft": llm.invoke("?").text}
"""
UNDER_IF = """
    draft = state["draft"]
    if is_long(draft):
        draft = llm.invoke(draft).text
    return {"draft": draft}
"""
MATCH = """
    match state["draft"]:
        case "":
            return {"draft": llm.invoke("?").text}
    return {}
"""
BOTH = """
    if is_long(state["draft"]):
        return {"draft": llm.invoke("a").text}
    return {"draft": llm.invoke("b").text}
"""
RAISES = """
    if not state["draft"]:
        raise ValueError
    return {"draft": llm.invoke("b").text}
"""
RETRIES = """
    for _ in range(3):
        try:
            return {"draft": llm.invoke("b").text}
        except OSError:
            pass
    return {}
"""
IN_A_FUNCTION = """
    if not is_long(state["draft"]):
        return shorten(state)
    return {"draft": llm.invoke("b").text}
def shorten(state):
    return {"draft": llm.invoke("c").text}
"""


@pytest.mark.parametrize(
    ("body", "skips"),
    [
        (EARLY_RETURN, True), (UNDER_IF, True), (MATCH, True),
        (BOTH, False), (RAISES, False), (RETRIES, False), (IN_A_FUNCTION, False),
    ],
    ids=["an early return", "a call under if", "a match", "both branches", "a raise", "a retry", "a function that calls"],
)  # fmt: skip
def test_a_node_that_may_end_without_a_call_is_passed_over_by_the_template(folder, capsys, body, skips):
    """Such a node failed the check, or each request for which it made no call."""
    source = f"{LLM}{SKIPS.replace('BODY', body)}"
    assert init(folder, capsys, source, "graph", "--apply", "--json")["stages"] == ["write", "check", "final"]
    namespace = {}
    text = (folder / "workflow.py").read_text(encoding="utf-8")
    exec(text[text.index("template = ") : text.index("def build")], vars(vinelm.template), namespace)
    assert (("write", "final") in namespace["template"].flow.follows) == skips
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out


ROUNDS = """
def write(state: State):
    return {"draft": llm.invoke(state["question"]).text}
async def search(state: State):
    found = [one for one in state.get("draft", "").split() if one.isdigit()]
    async def note(text: str):
        return (await llm.ainvoke(text)).text
    notes = await asyncio.gather(*[note(one) for one in found])
    return {"draft": " ".join(notes)}
def extract(state: State):
    return {"answer": llm.invoke(state["draft"]).text}
def reflect(state: State):
    return {"draft": llm.invoke(state["answer"]).text}
def again(state: State):
    return END if state["draft"] else "search"
builder = one_node(FIRST)
for name, node in NODES.items():
    builder.add_node(name, node)
EDGES
builder.add_edge("search", "extract")
builder.add_edge("extract", "reflect")
builder.add_conditional_edges("reflect", again, ["search", END])
graph = builder.compile()
"""
BEHIND = ("'write', write", "{'search': search, 'extract': extract, 'reflect': reflect}", "builder.add_edge('write', 'search')")
AT_THE_START = ("'search', search", "{'extract': extract, 'reflect': reflect}", "")


@pytest.mark.parametrize("parts", [BEHIND, AT_THE_START], ids=["behind a node", "at the start"])
def test_a_loop_whose_first_node_may_find_nothing_begins_with_a_branch(folder, capsys, parts):
    """A search without a result made no call for its notes, which failed the check; its loop stays one of three stages."""
    source = f"{LLM}import asyncio\n{ROUNDS}"
    for name, part in zip(("FIRST", "NODES", "EDGES"), parts, strict=True):
        source = source.replace(name, part)
    assert isinstance(init(folder, capsys, source, "graph", "--apply", "--json"), dict)
    namespace = {}
    text = (folder / "workflow.py").read_text(encoding="utf-8")
    exec(text[text.index("template = ") : text.index("def build")], vars(vinelm.template), namespace)
    *_, loop = namespace["template"].steps
    branch, *others = loop.stages
    assert [set(branch.arms), *(one.name for one in others)] == [{"search", "extract"}, "extract", "reflect"]
    assert branch.arms["extract"] == ()
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out


IN_THREADS = """
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
POOL = ThreadPoolExecutor(2)
def say(found, text):
    found.append(llm.invoke(text).text)
"""


OF_A_FUNCTION = """
def reply(question):
    with ThreadPoolExecutor() as pool:
        return pool.submit(llm.invoke, question).result().text
"""
OF_THE_MODULE = """
def write(state: State):
    found = []
    POOL.submit(say, found, state["question"]).result()
    return {"answer": found[0]}
graph = one_node("write", write).compile()
"""
A_THREAD = """
def write(state: State):
    found = []
    asked = Thread(target=say, args=(found, state["question"]))
    asked.start()
    asked.join()
    return {"answer": found[0]}
graph = one_node("write", write).compile()
"""


@pytest.mark.parametrize(
    ("source", "name"),
    [(OF_A_FUNCTION, "reply"), (OF_THE_MODULE, "graph"), (A_THREAD, "graph")],
    ids=["a function with a pool", "a node with the module's pool", "a node with a thread"],
)
def test_calls_in_threads_of_the_application_belong_to_its_run(folder, capsys, monkeypatch, source, name):
    """They were refused: nothing said to which run they belong."""
    assert isinstance(init(folder, capsys, f"{LLM}{IN_THREADS}{source}\n", name, "--apply", "--json"), dict)

    def traced(thread, start=Thread.start):
        return start(thread)

    monkeypatch.setattr(Thread, "start", traced)  # as OpenTelemetry's instrumentation does
    before = ThreadPoolExecutor.submit, Thread.start
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out
    assert (ThreadPoolExecutor.submit, Thread.start) == before


def test_a_state_that_refuses_an_input_without_an_id_gets_the_requests(folder, capsys):
    source = (
        f"from pydantic import BaseModel\n{LLM}class Chat(BaseModel):\n    question: str\n    session_id: str\n    tone: str\n"
        "    answer: str = ''\ndef write(state: Chat):\n    return {'answer': llm.invoke(state.question).text}\n"
        "graph = one_node('write', write, Chat).compile()\n"
    )
    found = init(folder, capsys, source, "graph", "--apply", "--json")
    assert [todo["text"] for todo in found["todo"]] == ["give tone, too, without which the state is refused."]
    assert '"question": request.data["question"], "session_id": request.id}' in (folder / "workflow.py").read_text("utf-8")
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "1 validation error for Chat: tone: Field required" in said
    assert "+ 1?" not in said  # the question


SDK = "from openai import AsyncOpenAI, OpenAI\nsdk = OpenAI(max_retries=0)\n"
ASKING = 'sdk.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "?"}])'


def test_a_client_of_the_sdk_sends_nothing_while_an_application_is_read_or_checked(folder, capsys):
    """The fixture's server counts what is sent: it was one request for each of the three."""
    assert "calls a model (at app_of_init.py:" in init(folder, capsys, f"{LLM}{SDK}{ASKING}\n{GRAPH}", "graph", "--yes")
    node = f"def write(state: State):\n    {ASKING}\n    return {{'answer': llm.invoke(state['question']).text}}\n"
    graph = f'{node}graph = one_node("write", write).compile()\n'
    assert "calls a model (at app_of_init.py:" in init(
        folder,
        capsys,
        f"{LLM}{SDK}{WRITE}def make():\n    {ASKING}\n    return one_node('write', write).compile()\n",
        "make",
        "--yes",
    )
    assert isinstance(init(folder, capsys, f"{LLM}{SDK}{graph}", "graph", "--apply", "--json"), dict)
    text = (folder / "app_of_init.py").read_text(encoding="utf-8")
    (folder / "app_of_init.py").write_text(text.replace("vine.around(OpenAI(max_retries=0))", "OpenAI(max_retries=0)"), "utf-8")
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 2
    said = " ".join(capsys.readouterr().out.split())
    assert "FAIL clients: your code calls a model (at app_of_init.py:" in said
    assert "and nothing was sent: put vine.around(...) around that client" in said


AGENTS_SDK = """
from openai import AsyncOpenAI
_client = None
def set_default_openai_api(api):
    pass
def set_default_openai_client(client):
    global _client
    _client = client
async def run(text):
    global _client
    _client = _client or AsyncOpenAI(max_retries=0)
    asked = [{"role": "user", "content": text}]
    return (await _client.chat.completions.create(model="gpt-4o", messages=asked)).choices[0].message.content
"""
OF_THE_SDK = """
from agents import run, set_default_openai_api

set_default_openai_api("chat_completions")
NAME = "gpt-4o"  # the one model that the code mentions


def cleaned(text):
    return text.strip()


async def reply(question: str) -> str:
    return cleaned(await run(question))
"""


def test_the_client_that_the_agents_sdk_makes_by_itself_is_wrapped(folder, capsys, monkeypatch):
    """Its calls were sent in a dry run, were in no row, and no plan changed them: the verdict was of the other clients."""
    (folder / "agents.py").write_text(AGENTS_SDK)
    monkeypatch.delitem(sys.modules, "agents", raising=False)
    monkeypatch.setattr("vinelm.scaffold.model_calls.is_user_code", lambda name, file: name != "agents")  # a package
    found = init(folder, capsys, OF_THE_SDK, "reply", "--apply", "--json")
    assert isinstance(found, dict), found
    assert (found["stages"], found["models_today"]) == (["agents"], ["openai:gpt-4o"])
    text = (folder / "app_of_init.py").read_text(encoding="utf-8")
    line = 'set_default_openai_client(vine.around(AsyncOpenAI(), "agents"))'
    assert text.index("from langgraph.types import") < text.index(line) < text.index("class State")
    sys.modules.pop("agents")
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out
    sys.modules.pop("agents")


LLAMA = """
import openai
from pydantic import BaseModel
class OpenAI(BaseModel):
    model: str
    reuse_client: bool = True
    _client: object = None
    _aclient: object = None
    def _get_client(self):
        return self._client or openai.OpenAI()
    def _get_aclient(self):
        return self._aclient or openai.AsyncOpenAI()
    def complete(self, text):
        asked = [{"role": "user", "content": text}]
        return self._get_client().chat.completions.create(model=self.model, messages=asked).choices[0].message.content
"""
OF_LLAMA = """
from llama_index.llms.openai.base import OpenAI
llm = OpenAI(model="gpt-4o")
def reply(question: str) -> str:
    return llm.complete(question)
"""


@pytest.fixture
def llama_index(monkeypatch, tmp_path_factory):
    """A stand-in for LlamaIndex's package: its model object makes clients of the openai SDK by itself."""
    package = tmp_path_factory.mktemp("packages") / "llama_index" / "llms" / "openai"
    package.mkdir(parents=True)
    (package / "base.py").write_text(LLAMA)
    had = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "llama_index"}
    monkeypatch.syspath_prepend(package.parents[2])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "llama_index"]:
        del sys.modules[name]
    sys.modules.update(had)


@pytest.mark.usefixtures("llama_index")
def test_the_model_of_llamaindex_is_wrapped(folder, capsys):
    found = init(folder, capsys, OF_LLAMA, "", "--apply", "--json")
    assert isinstance(found, dict), found
    assert (found["stages"], found["models_today"]) == (["llm"], ["openai:gpt-4o"])
    assert 'llm = vine.around(OpenAI(model="gpt-4o")' in (folder / "app_of_init.py").read_text(encoding="utf-8")
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out


TEAM = """
def goes_on(state: State):
    return "report"
def say(state: State):
    return {"draft": llm.invoke(state["question"]).text}
builder = one_node("lead", say)
for name in ("plan", "search", "code"):
    builder.add_node(name, say)
builder.add_node("report", write)
ways = ["plan", "search", "code", "report"]
for name in ("lead", "plan", "search", "code"):
    builder.add_conditional_edges(name, goes_on, ways)
graph = builder.compile()
"""


def test_a_team_whose_members_call_each_other_is_one_loop(folder, capsys):
    """It was a loop for each member that may be first, whose histories cannot be merged: the estimate failed after the run."""
    found = init(folder, capsys, f"{LLM}{WRITE}{TEAM}", "graph", "--apply", "--loop-times", "9", "--json")
    assert isinstance(found, dict), found
    text = (folder / "workflow.py").read_text(encoding="utf-8")
    assert text.count("Loop(\n") == 1
    assert "memory=1" in text
    namespace = {}
    exec(text[text.index("template = ") : text.index("def build")], vars(vinelm.template), namespace)
    Trie.from_template(namespace["template"].bind(("gpt-4o", "b")))
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out


def test_the_final_key_of_a_state_is_the_answer_rather_than_its_messages(folder, capsys):
    source = (
        f"{LLM}class Report(MessagesState):\n    observations: list[str]\n    final_report: str\n"
        "def write(state: Report):\n    return {'final_report': llm.invoke(state['messages']).text}\n"
        "graph = one_node('write', write, Report).compile()\n"
    )
    assert isinstance(init(folder, capsys, source, "graph", "--apply", "--json"), dict)
    assert 'state.get("final_report", "")' in (folder / "workflow.py").read_text(encoding="utf-8")
