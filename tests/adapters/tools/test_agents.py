"""Declared tools in agents, tool nodes and nodes of one's own: what runs ahead answers, and nothing else changes."""

import asyncio
import threading

import pytest
from kit.apps.chat import calls_then
from kit.apps.echo import run, thread
from kit.apps.streaming import PRICES, Chat, Guesses
from kit.catalogs import make_catalog
from kit.tool_episodes import TEMPLATE
from kit.tool_sessions import a_call
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt

pytest.importorskip("langchain")
from langchain.agents import create_agent

from vinelm import Catalog, Speculation, VineLM, VineMiddleware
from vinelm.adapters.tools.declaring import declared_in
from vinelm.backends import create_backends
from vinelm.errors import CallError, CallRefused, ConfigError
from vinelm.estimator.patterns.pattern_file import read_patterns, write_patterns
from vinelm.estimator.patterns.patterns import mine
from vinelm.money import SpendGuard
from vinelm.policies import ForcedPolicy
from vinelm.profiler.execution.unit import UnitRunner
from vinelm.requests.workflow import Request, Workflow

MODES = ("sync", "async")


class Writer(Chat):
    """Streams a text in pieces of three characters; its last chunk waits until the test lets it go."""

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        text = self.answer("m", messages, {}).text
        for at in range(0, len(text), 3):
            yield ChatGenerationChunk(message=AIMessageChunk(content=text[at : at + 3]))
        if self.gate is not None:
            self.gate()
        yield ChatGenerationChunk(message=AIMessageChunk(content="", response_metadata={"finish_reason": "stop"}))


class App:
    """An application with a read-only and a writing tool, and what was called in it."""

    def __init__(self, answer, *, gate=None, candidates=None, mode="enforce", cost_usd=0.0, look=None, chat=Chat, **settings):
        self.log, self.looked = [], threading.Event()
        self.chat = chat(answer=answer, gate=gate)
        catalog = Catalog.from_chat_models({"m0": self.chat}, prices={"m0": PRICES})
        self.vine = VineLM(catalog, template=TEMPLATE, mode=mode, **settings)
        self.look = self.vine.tool(look or self.make_look(), read_only=True, cost_usd=cost_usd)
        self.book = self.vine.tool(self.make_book(), writes="session")
        self.vine.adapter.tools.candidates = candidates

    def make_look(self):
        def look(item: str) -> str:
            """Look an item up."""
            self.log.append(f"look {item} {threading.current_thread().name == 'vinelm-read-ahead'}")
            self.looked.set()
            return f"{item} is fine"

        return look

    def make_book(self):
        def book(item: str) -> str:
            """Book an item."""
            self.log.append(f"book {item}")
            return "booked"

        return book

    def agent(self, **kwargs):
        return create_agent(self.chat, [self.look, self.book], middleware=[VineMiddleware(self.vine)], **kwargs)

    def context(self, **speculation):
        return self.vine.context(speculate=Speculation(**speculation))


def ask(text="tea?"):
    return {"messages": [HumanMessage(text)]}


def texts(out):
    return [message.text for message in out["messages"]]


ONE_LOOK = calls_then("ok", ("look", {"item": "tea"}))


@pytest.mark.parametrize("mode", MODES)
def test_a_call_starts_while_the_model_still_writes(mode):
    app = App(ONE_LOOK)
    app.chat.gate = lambda: not any(app.log) and app.looked.wait(5)
    out = run(app.agent(), mode, ask(), context=app.context())
    assert texts(out) == ["tea?", "", "tea is fine", "ok"]
    assert app.log == ["look tea True"]
    assert app.vine.tool_counts["started"] == 1
    assert app.vine.tool_counts["ready"] + app.vine.tool_counts.get("joined", 0) == 1


def text_app(eager, **settings):
    """A stage that writes "look tea;" and another node that does what is written."""
    app = App(lambda *_: AIMessage("please look tea; thanks"), chat=Writer, **settings)

    def think(state: MessagesState, model) -> dict:
        return {"messages": [model.invoke("?")]}

    async def athink(state: MessagesState, model) -> dict:
        return {"messages": [await model.ainvoke("?")]}

    def do(state: MessagesState) -> dict:
        item = state["messages"][-1].text.partition("look ")[2].partition(";")[0]
        return {"messages": [AIMessage(app.look.invoke({"item": item}))]}

    def graph(mode):
        stage = app.vine.stage("model", think if mode == "sync" else athink, eager=eager)
        built = StateGraph(MessagesState).add_node("model", stage).add_node("do", do)
        return built.add_edge(START, "model").add_edge("model", "do").compile()

    return app, graph


def items_in(state):
    """Reads "look X;" in the pieces of a text."""
    said = [""]

    def read(piece):
        said[0] += piece
        *whole, said[0] = said[0].split(";")
        return [("look", {"item": one.partition("look ")[2]}) for one in whole]

    return read


@pytest.mark.parametrize("mode", MODES)
def test_a_call_in_a_text_starts_while_it_is_written(mode):
    app, graph = text_app(items_in)
    app.chat.gate = lambda: not any(app.log) and app.looked.wait(5)
    assert texts(run(graph(mode), mode, ask(), context=app.context()))[-1] == "tea is fine"
    assert app.log == ["look tea True"]
    app.log.clear()
    app.chat.gate = None
    assert texts(run(graph(mode), mode, ask(), context=app.vine.context()))[-1] == "tea is fine"
    assert app.log == ["look tea False"]  # nobody allowed anything ahead


def test_what_a_reader_of_text_raises_fails_no_answer():
    def begins(state):
        raise RuntimeError("theirs")

    def reads(state):
        return lambda piece: 1 / 0

    for eager in (begins, reads, lambda state: lambda piece: [("none", {}), ("look", {"thing": 1}), ("book", {"item": "tea"})]):
        app, graph = text_app(eager)
        assert texts(run(graph("sync"), "sync", ask(), context=app.context()))[-1] == "tea is fine"
        assert app.log == ["look tea False"]
    app, graph = text_app(reads, on_error="raise")
    with pytest.raises(CallError, match="ZeroDivisionError"):
        run(graph("sync"), "sync", ask(), context=app.context())


def test_a_reader_that_has_raised_is_not_asked_again():
    asked = []

    def begins(state):
        asked.append("begins")
        raise RuntimeError("theirs")

    def reads(state):
        def read(piece):
            asked.append(piece)
            raise RuntimeError("theirs")

        return read

    for eager in (begins, reads):
        app, graph = text_app(eager)
        run(graph("sync"), "sync", ask(), context=app.context())
        assert len(asked) == 1
        asked.clear()


def test_each_answer_is_read_from_its_start():
    """Half a call at the end of one answer is no beginning of another."""
    app, _ = text_app(items_in)
    said = iter(["look co", "look tea;"])
    app.chat.answer = lambda *_: AIMessage(next(said))

    def think(state: MessagesState, model) -> dict:
        return {"messages": [model.invoke("?"), model.invoke("?")]}

    def do(state: MessagesState) -> dict:
        assert app.looked.wait(5), app.look.name
        return {}

    graph = StateGraph(MessagesState).add_node("model", app.vine.stage("model", think, eager=items_in)).add_node("do", do)
    graph.add_edge(START, "model").add_edge("model", "do").compile().invoke(ask(), context=app.context())
    assert app.log == ["look tea True"]


@pytest.mark.parametrize("mode", MODES)
def test_nothing_runs_ahead_unless_it_is_asked_for(mode):
    app = App(ONE_LOOK, candidates=Guesses(("look", {"item": "tea"}, 1.0)))
    assert texts(run(app.agent(), mode, ask(), context=app.vine.context()))[-1] == "ok"
    assert app.log == ["look tea False"]
    assert app.vine.tool_counts == {"reads": 1}


@pytest.mark.parametrize("mode", MODES)
def test_guesses_see_the_conversation_and_wrong_ones_cost_no_output(mode):
    guesses = Guesses(
        ("look", {"item": "tea"}, 0.9), ("look", {"item": "no"}, 0.2), ("book", {"item": "tea"}, 1.0), ("x", {}, 1.0)
    )
    app = App(
        calls_then("ok", ("look", {"item": "tea"}), ("book", {"item": "tea"}), ("look", {"item": "tea"})), candidates=guesses
    )
    out = run(app.agent(), mode, ask(), context=app.context())
    assert texts(out) == ["tea?", "", "tea is fine", "", "booked", "", "tea is fine", "ok"]
    assert app.log.count("book tea") == 1
    assert not any("no" in line for line in app.log)
    assert guesses.histories[1] == ["tea?", ("look", {"item": "tea"}, "tea is fine")]


def test_an_async_tool_runs_ahead_as_a_task_and_is_joined():
    async def main():
        seen = []

        async def look(item: str, config: RunnableConfig) -> str:
            """Look an item up."""
            seen.append((item, config["configurable"].get("tenant"), bool(config["callbacks"])))
            await asyncio.sleep(0.01)
            return f"{item} is fine"

        app = App(ONE_LOOK, look=look)
        out = await app.agent().ainvoke(ask(), {"configurable": {"tenant": "acme"}}, context=app.context())
        return texts(out), seen, app.vine.tool_counts

    out, seen, counts = asyncio.run(main())
    assert out[-2:] == ["tea is fine", "ok"]
    assert seen == [("tea", "acme", False)]
    assert counts["started"] == 1 == counts.get("ready", 0) + counts.get("joined", 0)


def own_nodes(app):
    """The same loop by hand: a wrapped stage, LangGraph's tool node."""

    def think(state: MessagesState, model) -> dict:
        return {"messages": [model.bind_tools([app.look, app.book]).invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", app.vine.stage("model", think))
    retry = RetryPolicy(max_attempts=2, initial_interval=0.0, jitter=False)
    graph.add_node("tools", ToolNode([app.look, app.book]), retry_policy=retry)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph


def test_in_nodes_of_ones_own_and_by_hand():
    app = App(ONE_LOOK, candidates=Guesses(("look", {"item": "tea"}, 1.0)))
    assert texts(run(own_nodes(app).compile(), "sync", ask(), context=app.context()))[-1] == "ok"
    assert "look tea True" in app.log
    assert "look tea False" not in app.log

    def by_hand(state: MessagesState) -> dict:
        return {"messages": [AIMessage(app.look.invoke({"item": "milk"}))]}

    graph = StateGraph(MessagesState).add_node("hand", by_hand).add_edge(START, "hand").add_edge("hand", END).compile()
    assert texts(graph.invoke(ask(), context=app.context()))[-1] == "milk is fine"


@pytest.mark.parametrize(("attempts", "log"), [(1, ["look tea True"]), (2, ["look tea True", "look tea False"])])
def test_a_node_that_is_run_again_begins_with_nothing(attempts, log):
    app = App(lambda *_: AIMessage("no tool"), candidates=Guesses(("look", {"item": "tea"}, 1.0)))
    made = []

    def think(state: MessagesState, model) -> dict:
        return {"messages": [model.invoke("?")]}

    def hand(state: MessagesState) -> dict:
        made.append(app.looked.wait(5))
        if len(made) < attempts:
            raise ConnectionError("once")
        return {"messages": [AIMessage(app.look.invoke({"item": "tea"}))]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", app.vine.stage("model", think))
    graph.add_node("hand", hand, retry_policy=RetryPolicy(max_attempts=2, initial_interval=0.0, jitter=False))
    graph.add_edge(START, "model").add_edge("model", "hand")
    assert texts(graph.compile().invoke(ask(), context=app.context()))[-1] == "tea is fine"
    assert app.log == log


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_resumes_begins_with_nothing(mode):
    def approve(question: str) -> str:
        """Ask a person."""
        return interrupt(question)

    app = App(calls_then("ok", ("approve", {"question": "sure?"}), ("look", {"item": "tea"})))
    app.vine.adapter.tools.candidates = Guesses(("look", {"item": "tea"}, 1.0))
    approve = app.vine.tool(approve, writes="session")
    agent = create_agent(
        app.chat, [app.look, app.book, approve], middleware=[VineMiddleware(app.vine)], checkpointer=InMemorySaver()
    )
    out = run(agent, mode, ask(), config=thread(), context=app.context())
    assert "__interrupt__" in out
    before = len(app.log)
    out = run(agent, mode, Command(resume="yes"), config=thread(), context=app.context())
    assert texts(out) == ["tea?", "", "yes", "", "tea is fine", "ok"]
    assert len(app.log) > before


def test_a_tool_that_reaches_for_the_graph_is_called_again_when_asked():
    def look(item: str) -> str:
        """Look an item up."""
        calls.append(item)
        get_stream_writer()({"looking": item})
        return "fine"

    calls = []
    app = App(ONE_LOOK, look=look, candidates=Guesses(("look", {"item": "tea"}, 1.0)))
    chunks = list(app.agent().stream(ask(), context=app.context(), stream_mode=["custom", "values"]))
    assert [one for kind, one in chunks if kind == "custom"] == [{"looking": "tea"}]
    assert texts(chunks[-1][1])[-2:] == ["fine", "ok"]
    assert len(calls) == 2


def test_callbacks_hear_of_each_call_once():
    app = App(ONE_LOOK, candidates=Guesses(("look", {"item": "tea"}, 1.0), ("look", {"item": "milk"}, 0.9)))

    async def events():
        return [one async for one in app.agent().astream_events(ask(), context=app.context(), version="v2")]

    found = [one for one in asyncio.run(events()) if one["event"].startswith("on_tool")]
    assert [(one["event"], one["name"]) for one in found] == [("on_tool_start", "look"), ("on_tool_end", "look")]


def test_observe_counts_and_starts_nothing():
    app = App(ONE_LOOK, mode="observe", candidates=Guesses(("look", {"item": "tea"}, 1.0)))
    assert texts(run(app.agent(), "sync", ask(), context=app.context()))[-1] == "ok"
    assert app.log == ["look tea False"]
    assert app.vine.tool_counts["withheld"] >= 1
    assert "started" not in app.vine.tool_counts


def test_nothing_runs_ahead_while_profiling():
    log = []

    def build(vine):
        def look(item: str) -> str:
            """Look an item up."""
            log.append(threading.current_thread().name)
            return "fine"

        tools = [vine.tool(look, read_only=True, cost_usd=5.0)]
        vine.adapter.tools.speculation = Speculation()
        vine.adapter.tools.candidates = Guesses(("look", {"item": "tea"}, 1.0))
        return create_agent(Chat(answer=ONE_LOOK), tools, middleware=[VineMiddleware(vine)])

    chat = Chat(answer=ONE_LOOK)
    workflow = Workflow(
        name="looks",
        build=build,
        template=TEMPLATE,
        requests=[Request("a", {})],
        inputs=lambda request: ask(),
        score=lambda request, state: True,
    )
    catalog = Catalog.from_chat_models({"m0": chat}, prices={"m0": PRICES})
    result = UnitRunner(workflow, catalog, create_backends(catalog)).run(workflow.requests[0], ("m0",), None)
    assert result.observation.failure is None
    assert "vinelm-read-ahead" not in log
    assert log


@pytest.mark.parametrize("mode", MODES)
def test_a_priced_call_is_refused_beyond_the_cap_and_paid_once_below(mode):
    def served(cap_usd, app):
        policy = ForcedPolicy(TEMPLATE, ("m0",) * 3)
        policy.guard = SpendGuard(cap_usd)
        context = app.vine.context(policy=policy, speculate=Speculation())
        return run(app.agent(), mode, ask(), context=context), policy.guard

    app = App(ONE_LOOK, cost_usd=0.004)
    out, guard = served(0.005, app)
    assert texts(out)[-1] == "ok"
    assert (guard.spent_usd, guard.reserved_usd) == (0.004, 0.0)
    app = App(ONE_LOOK, cost_usd=0.006)
    with pytest.raises(CallRefused):
        served(0.005, app)
    assert app.log == []


@pytest.mark.parametrize("method", ["take", "used", "begin_write", "end_write", "ended", "start", "speculate"])
def test_a_fault_of_ours_is_an_ordinary_call(method, monkeypatch):
    from vinelm.adapters.tools.read_ahead import ReadAhead

    def broken(*_, **__):
        raise RuntimeError("ours")

    monkeypatch.setattr(ReadAhead, method, broken)
    answer = calls_then("ok", ("look", {"item": "tea"}), ("book", {"item": "tea"}))
    app = App(answer, candidates=Guesses(("look", {"item": "tea"}, 1.0)))
    assert texts(run(app.agent(), "sync", ask(), context=app.context()))[-1] == "ok"
    assert app.log.count("book tea") == 1
    assert any(line.startswith("look tea") for line in app.log)
    if method in ("take", "begin_write", "speculate"):
        app = App(answer, candidates=Guesses(("look", {"item": "tea"}, 1.0)), on_error="raise")
        with pytest.raises(RuntimeError, match="ours"):
            run(app.agent(), "sync", ask(), context=app.context())


def test_a_sync_call_on_the_loops_own_thread_does_not_wait_for_it():
    async def main():
        app = App(ONE_LOOK)

        async def slow(item: str) -> str:
            """Look an item up."""
            await asyncio.sleep(0.01)
            return "async"

        from langchain_core.tools import StructuredTool

        both = app.vine.tool(
            StructuredTool.from_function(lambda item: "sync", slow, name="both", description="Both."), read_only=True
        )
        with app.vine.request(speculate=Speculation()):
            memory = app.vine.adapter.reads_finder.here()
            assert memory.start(declared_in(app.vine.adapter.tools, both), {"item": "tea"}, "eager", 1.0)
            return both.invoke({"item": "tea"})

    assert asyncio.run(main()) == "sync"


def test_load_takes_guesses_and_refuses_what_is_none(tmp_path):
    app = App(ONE_LOOK)
    with pytest.raises(ConfigError, match="patterns is a int"):
        app.vine.load("app.vine", patterns=3)
    with pytest.raises(ConfigError, match=r"none\.patterns: cannot be read"):
        app.vine.load("app.vine", patterns=tmp_path / "none.patterns")
    bare = VineLM(make_catalog(1), template=TEMPLATE)
    with pytest.raises(ConfigError, match="speculate= has no effect"):
        bare.load("app.vine", patterns=Guesses())
    mined = Guesses()
    mined.check = lambda schemas: (_ for _ in ()).throw(
        ConfigError(f"other arguments: {sorted(schemas['look']['properties'])}")
    )
    with pytest.raises(ConfigError, match=r"other arguments: \['item'\]"):
        app.vine.load("app.vine", patterns=mined)
    with pytest.raises(ConfigError, match="record_tools is 'all'"):
        VineLM(make_catalog(1), record_tools="all")


def test_what_was_mined_from_sessions_is_read_ahead_by_its_file(tmp_path):
    """Users name an item in each session, and the agent looks it up: so it does in a new one, before the model has said so."""
    sessions = []
    for number in range(30):
        item = f"t{number}"
        call = a_call(f"r{number}", 1, "look", {"item": item}, f"{item} is fine")
        sessions.append([f"is {item} in?", call])
    write_patterns(mine(sessions, ["look"]), tmp_path / "app.patterns")
    app = App(calls_then("ok", ("look", {"item": "t77"})))
    app.vine.adapter.tools.candidates = read_patterns(tmp_path / "app.patterns")
    app.chat.gate = lambda: not any(app.log) and app.looked.wait(5)
    out = app.agent().invoke({"messages": [("user", "is t77 in?")]}, context=app.context())
    assert out["messages"][-1].text == "ok"
    assert app.log == ["look t77 True"]


def test_observers_are_told_digests_and_spans_are_marked():
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from vinelm.telemetry import OpenTelemetry

    for record in ("digests", "values"):
        events, spans, provider = [], InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(spans))

        class Sink:
            def tool_ended(self, event, ago_s, events=events):
                events.append(event)

        app = App(
            calls_then("ok", ("look", {"item": "tea"}), ("book", {"item": "tea"})),
            candidates=Guesses(("look", {"item": "tea"}, 1.0), ("look", {"item": "PIN 1234"}, 0.9)),
            record_tools=record,
        )
        app.vine.observe(Sink())
        app.vine.observe(OpenTelemetry(provider))
        run(app.agent(), "sync", ask(), context=app.context())
        used = [(one.tool, one.kind, one.is_used, one.arguments) for one in events if one.is_used]
        told = {"item": "tea"} if record == "values" else None
        assert used == [("look", "speculated", True, told), ("book", "authoritative", True, told)]
        assert any(not one.is_used for one in events)
        assert [one.seq for one in events] == list(range(len(events)))
        named = [one for one in spans.get_finished_spans() if one.name.startswith("execute_tool")]
        assert {one.name: one.attributes["vinelm.tool.is_speculative"] for one in named} == {
            "execute_tool look": True,
            "execute_tool book": False,
        }
        assert "PIN" not in str([dict(one.attributes) for one in spans.get_finished_spans()])
