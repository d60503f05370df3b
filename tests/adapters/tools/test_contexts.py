"""A call ahead runs where the call that it stands in for would; where it cannot, the application makes its own call."""

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from kit.apps.chat import calls_then
from kit.apps.echo import run
from kit.apps.streaming import PRICES, Chat, Guesses
from kit.tool_episodes import TEMPLATE
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel, field_validator

from vinelm import Catalog, Speculation, VineLM
from vinelm.adapters.tools.declaring import declared_in

MODES = ("sync", "async")
USER = contextvars.ContextVar("user")
LOCAL = threading.local()


class App:
    """model -> tools -> model, where the tool knows its caller by what the test says."""

    def __init__(self, accounts, **how):
        self.chat = Chat(answer=calls_then("ok", ("accounts", {"year": 1})))
        self.vine = VineLM(Catalog.from_chat_models({"m0": self.chat}, prices={"m0": PRICES}), template=TEMPLATE)
        self.vine.adapter.tools.candidates = Guesses(("accounts", {"year": 1}, 1.0))
        self.accounts = self.vine.tool(accounts, read_only=True, **how)

    def graph(self, mode="sync", *, tools=None, think=None):
        def asks(state: MessagesState, model) -> dict:
            return {"messages": [model.bind_tools([self.accounts]).invoke(state["messages"])]}

        async def aasks(state: MessagesState, model) -> dict:
            return {"messages": [await model.bind_tools([self.accounts]).ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", self.vine.stage("model", think or (asks if mode == "sync" else aasks)))
        graph.add_node("tools", tools or ToolNode([self.accounts]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        return graph.compile()

    def ask(self, graph, mode="sync", **speculation):
        return run(graph, mode, self.inputs, context=self.vine.context(speculate=Speculation(**speculation)))

    inputs = {"messages": [HumanMessage("mine?")]}  # noqa: RUF012

    @property
    def counts(self):
        return self.vine.tool_counts


def by_context(year: int) -> str:
    """Return the accounts of the caller."""
    return f"accounts of {USER.get('nobody')}"


async def by_context_async(year: int) -> str:
    """Return the accounts of the caller."""
    await asyncio.sleep(0)
    return f"accounts of {USER.get('nobody')}"


by_context_async.__name__ = by_context.__name__ = "accounts"


def told(out):
    return out["messages"][-2].text


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tool", [by_context, by_context_async])
def test_a_call_ahead_knows_the_caller_by_a_context_variable(mode, tool):
    if mode == "sync" and tool is by_context_async:
        pytest.skip("it is called in async graphs")
    app = App(tool)

    def request():
        USER.set("mia")
        return told(app.ask(app.graph(mode), mode))

    assert contextvars.copy_context().run(request) == "accounts of mia"
    assert app.counts["ready"] + app.counts.get("joined", 0) == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_caller_who_is_named_where_the_tool_is_called_is_not_nobody(mode):
    app = App(by_context)

    def do(state: MessagesState) -> dict:
        USER.set("mia")
        return {"messages": [app.accounts.invoke(state["messages"][-1].tool_calls[0])]}

    async def ado(state: MessagesState) -> dict:
        USER.set("mia")
        return {"messages": [await app.accounts.ainvoke(state["messages"][-1].tool_calls[0])]}

    assert told(app.ask(app.graph(mode, tools=do if mode == "sync" else ado), mode)) == "accounts of mia"
    assert app.counts["started"] == 1  # it is not tried again in this run
    assert app.counts.get("ready", 0) == app.counts.get("joined", 0) == 0


def test_a_caller_who_is_lost_without_it_stays_lost():
    """A pool's thread has no context: outputs are what they are."""
    app = App(by_context)

    def do(state: MessagesState) -> dict:
        with ThreadPoolExecutor(1) as pool:
            return {"messages": [pool.submit(app.accounts.invoke, state["messages"][-1].tool_calls[0]).result()]}

    def request():
        USER.set("mia")
        return told(app.ask(app.graph(tools=do)))

    assert contextvars.copy_context().run(request) == "accounts of nobody"


def test_spans_of_a_tracer_are_no_other_context_and_baggage_is():
    from opentelemetry import baggage, context
    from opentelemetry.sdk.trace import TracerProvider

    def accounts(year: int) -> str:
        """Return the accounts of the caller."""
        return f"accounts of {baggage.get_baggage('user') or 'nobody'}"

    tracer = TracerProvider().get_tracer("test")
    for user in (None, "mia"):
        app = App(accounts)

        def do(state: MessagesState, app=app, user=user) -> dict:
            with tracer.start_as_current_span("tools"):
                if user is not None:
                    context.attach(baggage.set_baggage("user", user))
                return {"messages": [app.accounts.invoke(state["messages"][-1].tool_calls[0])]}

        assert told(app.ask(app.graph(tools=do))) == f"accounts of {user or 'nobody'}"
        assert app.counts.get("ready", 0) + app.counts.get("joined", 0) == (user is None)


def test_a_caller_who_is_known_by_thread_is_not_asked_on_another():
    def accounts(year: int) -> str:
        """Return the accounts of the caller."""
        return f"accounts of {getattr(LOCAL, 'user', 'nobody')}"

    app = App(accounts)
    LOCAL.user = "mia"

    def do(state: MessagesState) -> dict:
        return {"messages": [app.accounts.invoke(state["messages"][-1].tool_calls[0])]}

    assert told(app.ask(app.graph(tools=do))) == "accounts of mia"
    assert "started" not in app.counts


# -- liveness ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unchecked", [False, True])
def test_a_tool_that_takes_a_lock_which_the_request_holds_is_called_by_the_request(unchecked):
    lock, is_held = threading.RLock(), threading.Event()

    def accounts(year: int) -> str:
        """Return the accounts."""
        assert is_held.wait(20)
        with lock:
            return "accounts"

    app = App(accounts, unchecked=unchecked)

    def think(state: MessagesState, model) -> dict:
        with lock:
            is_held.set()
            asked = model.invoke(state["messages"])
            return {"messages": [asked, AIMessage(app.accounts.invoke({"year": 1})), AIMessage("ok")]}

    app.chat.answer = lambda *_: AIMessage("no tool")
    for _ in range(2):
        assert told(app.ask(app.graph(think=think), join_s=0.05)) == "accounts"
    # Where it may run in spite of the lock, it is not tried again in this process.
    assert app.counts.get("left", 0) == app.counts.get("started", 0) == unchecked


class Ledger:
    def __init__(self):
        self.entries, self.lock = {}, threading.RLock()


def test_a_call_ahead_takes_no_lock_that_the_requests_own_call_needs():
    """Else it would hold the one while it waits for the other, and the request for ever with it."""
    ledger, own = Ledger(), threading.RLock()

    def accounts(year: int) -> str:
        """Return the accounts."""
        with ledger.lock, own:
            return "accounts"

    app = App(accounts)

    def think(state: MessagesState, model) -> dict:
        with own:
            asked = model.invoke(state["messages"])
            return {"messages": [asked, AIMessage(app.accounts.invoke({"year": 1})), AIMessage("ok")]}

    app.chat.answer = lambda *_: AIMessage("no tool")
    assert told(app.ask(app.graph(think=think), join_s=0.05)) == "accounts"
    assert "started" not in app.counts


def test_an_asynchronous_tool_that_waits_for_what_the_request_does_later_is_called_by_it():
    async def main():
        later, calls = asyncio.Event(), []

        async def accounts(year: int) -> str:
            """Return the accounts."""
            calls.append(year)
            if len(calls) == 1:
                await later.wait()
            return "accounts"

        app = App(accounts)

        async def think(state: MessagesState, model) -> dict:
            asked = await model.ainvoke(state["messages"])
            found = await app.accounts.ainvoke({"year": 1})
            later.set()
            return {"messages": [asked, AIMessage(found), AIMessage("ok")]}

        app.chat.answer = lambda *_: AIMessage("no tool")
        context = app.vine.context(speculate=Speculation(join_s=0.05))
        out = await asyncio.wait_for(app.graph(think=think).ainvoke(app.inputs, context=context), 20)
        return told(out), app.counts

    out, counts = asyncio.run(main())
    assert out == "accounts"
    assert counts["left"] == counts["started"] == 1


def test_a_slow_call_ahead_that_ends_before_the_applications_own_bars_nothing():
    calls, goes_on, has_ended = [], threading.Event(), threading.Event()

    def accounts(year: int) -> str:
        """Return the accounts."""
        calls.append(year)
        if len(calls) == 1:
            goes_on.wait(20)
        else:
            goes_on.set()
            assert has_ended.wait(20)
        return "accounts"

    app = App(accounts)
    with app.vine.request(speculate=Speculation(join_s=0.01)):
        memory = app.vine.adapter.reads_finder.here()
        known = declared_in(app.vine.adapter.tools, app.accounts)
        assert memory.start(known, {"year": 1}, "speculated", 1.0)
        (read,) = memory._reads.values()
        read.shadow.result.add_done_callback(lambda _: has_ended.set())
        assert app.accounts.invoke({"year": 1}) == "accounts"
        assert not memory.start(known, {"year": 2}, "speculated", 1.0)  # not in this run
    with app.vine.request(speculate=Speculation()):
        assert app.vine.adapter.reads_finder.here().start(known, {"year": 1}, "speculated", 1.0)
    assert app.counts["left"] == 1


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("mode", MODES)
def test_what_ends_a_call_ahead_ends_no_request(mode, kind):
    ran = []

    def accounts(year: int) -> str:
        """Return the accounts."""
        ran.append(threading.current_thread().name)
        raise kind("of the tool")

    async def accounts_async(year: int) -> str:
        """Return the accounts."""
        return accounts(year)

    accounts_async.__name__ = "accounts"
    app = App(accounts if mode == "sync" else accounts_async)
    app.chat.answer = lambda *_: AIMessage("no tool")
    out = app.ask(app.graph(mode), mode)
    assert [message.text for message in out["messages"]] == ["mine?", "no tool"]
    assert app.counts["started"] == 1


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_loop_with_other_requests_goes_on(kind):
    async def accounts(year: int) -> str:
        """Return the accounts."""
        raise kind("of the tool")

    async def main():
        app = App(accounts)
        app.chat.answer = lambda *_: AIMessage("no tool")
        asked = [app.graph("async").ainvoke(app.inputs, context=app.vine.context(speculate=Speculation())) for _ in range(4)]
        found = await asyncio.gather(*asked)
        return [out["messages"][-1].text for out in found], app.counts["started"]

    assert asyncio.run(main()) == (["no tool"] * 4, 4)


@pytest.mark.parametrize("join_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_join_has_a_limit(join_s):
    from vinelm.errors import ConfigError

    with pytest.raises(ConfigError, match="join_s"):
        Speculation(join_s=join_s)


# -- who asks, by other ways -----------------------------------------------------------------------------------------


def by_config(year: int, config: RunnableConfig) -> str:
    """Return the accounts of the caller."""
    return f"accounts of {config['configurable'].get('user')}"


async def by_config_async(year: int, config: RunnableConfig) -> str:
    """Return the accounts of the caller."""
    return f"accounts of {config['configurable'].get('user')}"


def by_metadata(year: int, config: RunnableConfig) -> str:
    """Return the accounts of the caller."""
    return f"accounts of {config['metadata'].get('user')}"


by_config.__name__ = by_config_async.__name__ = by_metadata.__name__ = "accounts"


@pytest.mark.parametrize("key", ["configurable", "metadata"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tool", [by_config, by_config_async, by_metadata])
def test_a_call_with_another_config_is_told_what_is_its_own(mode, tool, key):
    """A node that names the caller in the config of the tool's call: the model's own call was for somebody else."""
    if mode == "sync" and tool is by_config_async:
        pytest.skip("it is called in async graphs")
    if (tool is by_metadata) != (key == "metadata"):
        pytest.skip("it does not look there")
    app = App(tool)

    def config_of(config):
        return {**config, key: {**config[key], "user": "tom"}}

    def do(state: MessagesState, config: RunnableConfig) -> dict:
        return {"messages": [app.accounts.invoke(state["messages"][-1].tool_calls[0], config_of(config))]}

    async def ado(state: MessagesState, config: RunnableConfig) -> dict:
        return {"messages": [await app.accounts.ainvoke(state["messages"][-1].tool_calls[0], config_of(config))]}

    graph = app.graph(mode, tools=do if mode == "sync" else ado)
    context = app.vine.context(speculate=Speculation())
    out = run(graph, mode, app.inputs, config={key: {"user": "mia"}}, context=context)
    assert told(out) == "accounts of tom"
    assert app.counts["started"]
    assert "ready" not in app.counts
    assert "joined" not in app.counts


@pytest.mark.parametrize("mode", MODES)
def test_a_call_with_the_same_config_is_answered_by_what_ran_ahead(mode):
    app = App(by_config)
    context = app.vine.context(speculate=Speculation())
    out = run(app.graph(mode), mode, app.inputs, config={"configurable": {"user": "mia"}}, context=context)
    assert told(out) == "accounts of mia"
    assert app.counts.get("ready", 0) + app.counts.get("joined", 0) == 1


KNOWN_BY = {}


def test_a_caller_who_is_known_by_the_number_of_his_thread_is_not_asked_on_another():
    def accounts(year: int) -> str:
        """Return the accounts of the caller."""
        return f"accounts of {KNOWN_BY.get(threading.get_ident(), 'nobody')}"

    app = App(accounts)

    def do(state: MessagesState) -> dict:
        KNOWN_BY[threading.get_ident()] = "mia"
        return {"messages": [app.accounts.invoke(state["messages"][-1].tool_calls[0])]}

    assert told(app.ask(app.graph(tools=do))) == "accounts of mia"
    assert "started" not in app.counts


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("mode", MODES)
def test_a_schema_that_ends_a_guess_ends_no_request(mode, kind):
    """The arguments of a guess are checked before anybody has asked for them."""

    class Year(BaseModel):
        year: int

        @field_validator("year")
        @classmethod
        def is_open(cls, year: int) -> int:
            if year == 2:
                raise kind
            return year

    app = App(StructuredTool.from_function(lambda year: "none", name="accounts", description="Accounts.", args_schema=Year))
    app.vine.adapter.tools.candidates = Guesses(("accounts", {"year": 2}, 1.0))
    assert app.ask(app.graph(mode, tools=ToolNode([app.accounts])), mode)["messages"][-1].text == "ok"
