"""What the application may still refuse or change is not called ahead, unless its owner says so for that tool."""

import sys
import threading
from importlib import import_module
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import pytest
from kit.apps.chat import calls_then
from kit.apps.echo import run, thread
from kit.apps.streaming import PRICES, Chat, Guesses
from kit.tool_episodes import TEMPLATE
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool
from langgraph import types
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from langgraph.types import interrupt as ask_somebody

pytest.importorskip("langchain")
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    after_model,
    before_model,
    dynamic_prompt,
    wrap_model_call,
    wrap_tool_call,
)

from vinelm import Catalog, Speculation, VineLM, VineMiddleware

MODES = ("sync", "async")


class Bank:
    """A model that asks for an account; all that could be guessed is guessed, and the model waits for nothing."""

    def __init__(self, **how):
        self.ran = []
        self.chat = Chat(answer=calls_then("ok", ("account", {"name": "mia"})))
        self.vine = VineLM(Catalog.from_chat_models({"m0": self.chat}, prices={"m0": PRICES}), template=TEMPLATE)
        self.vine.adapter.tools.candidates = Guesses(("account", {"name": "mia"}, 1.0))
        self.account = self.vine.tool(self.plain(), read_only=True, **how)

    def plain(self):
        def account(name: str) -> str:
            """Return an account."""
            self.ran.append((name, threading.current_thread().name == "vinelm-read-ahead"))
            return f"account of {name}"

        return account

    @property
    def ahead(self):
        for one in threading.enumerate():
            if one.name == "vinelm-read-ahead":
                one.join(10)
        return [name for name, is_ahead in self.ran if is_ahead]

    def agent(self, *others, **how):
        return create_agent(self.chat, [self.account], middleware=[*others, VineMiddleware(self.vine)], **how)

    def nodes(self, tools=None, *, between=(), condition=tools_condition):
        """model -> the nodes between -> tools -> model."""

        def think(state: MessagesState, model) -> dict:
            return {"messages": [model.bind_tools([self.account]).invoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", self.vine.stage("model", think))
        graph.add_node("tools", tools or ToolNode([self.account]))
        graph.add_edge(START, "model")
        names = [f"between{number}" for number in range(len(between))]
        for name, node in zip(names, between, strict=True):
            graph.add_node(name, node)
        for before, after in pairwise([*names, "tools"]):
            graph.add_edge(before, after)
        ways = {"tools": names[0] if names else "tools", END: END}
        graph.add_conditional_edges("model", condition, ways)
        graph.add_edge("tools", "model")
        return graph

    def invoke(self, graph, mode="sync", inputs=None, config=None, **how):
        context = self.vine.context(speculate=Speculation())
        asked = {"messages": [HumanMessage("mine?")]} if inputs is None else inputs
        return run(graph, mode, asked, config=config, context=context, **how)


@wrap_tool_call
def deny(request, handler):
    return ToolMessage("denied", tool_call_id=request.tool_call["id"])


@wrap_tool_call
def rewrite(request, handler):
    return handler(request.override(tool_call={**request.tool_call, "args": {"name": "nobody"}}))


@after_model
def redact(state, runtime):
    last = state["messages"][-1]
    calls = [{**one, "args": {"name": "nobody"}} for one in last.tool_calls]
    return {"messages": [last.model_copy(update={"tool_calls": calls})]}


@before_model
def look_first(state, runtime):
    return None


@wrap_model_call
def strip(request, handler):
    response = handler(request)
    for message in response.result:
        message.tool_calls = [{**one, "args": {"name": "nobody"}} for one in message.tool_calls]
    return response


@dynamic_prompt
def prompt(request):
    return "Be brief."


class AsyncDeny(AgentMiddleware):
    async def awrap_tool_call(self, request, handler):
        return ToolMessage("denied", tool_call_id=request.tool_call["id"])


class Guarded(VineMiddleware):
    """One that an application has derived."""

    def after_model(self, state, runtime):
        return redact.after_model(state, runtime)


class Renamed(VineMiddleware):
    """One that looks at each call of a model, and is called as ours is."""

    def wrap_model_call(self, request, handler):
        return super().wrap_model_call(request, handler)


Renamed.__name__ = VineMiddleware.__name__


class Strip(AgentMiddleware):
    """A class of the application's own."""

    def wrap_model_call(self, request, handler):
        return strip.wrap_model_call(request, handler)


APPROVED = HumanInTheLoopMiddleware(interrupt_on={"account": True})


@pytest.mark.parametrize("mode", MODES)
def test_an_agent_without_more_calls_ahead(mode):
    """Else the tests below could not fail."""
    bank = Bank()
    assert bank.invoke(bank.agent(), mode)["messages"][-1].text == "ok"
    assert "mia" in bank.ahead


@pytest.mark.parametrize("other", [deny, rewrite, redact, look_first, strip, prompt, Strip()])
def test_what_a_middleware_may_refuse_or_change_is_not_called_ahead(other):
    bank = Bank()
    bank.invoke(bank.agent(other))
    assert bank.ahead == []
    is_changed = other in (rewrite, redact, strip) or isinstance(other, Strip)
    assert {name for name, _ in bank.ran} <= ({"nobody"} if is_changed else {"mia"})


def test_so_is_what_an_asynchronous_one_denies():
    bank = Bank()
    out = bank.invoke(bank.agent(AsyncDeny()), "async")
    assert out["messages"][-2].text == "denied"
    assert bank.ran == []


def test_and_what_one_derived_from_ours_does():
    bank = Bank()
    agent = create_agent(bank.chat, [bank.account], middleware=[Guarded(bank.vine)])
    bank.invoke(agent)
    assert bank.ran == [("nobody", False)]


def test_and_what_one_does_that_has_the_name_of_ours():
    bank = Bank()
    bank.invoke(create_agent(bank.chat, [bank.account], middleware=[Renamed(bank.vine)]))
    assert bank.ran == [("mia", False)]


@pytest.mark.parametrize("mode", MODES)
def test_nothing_runs_before_a_person_approves_it(mode):
    bank = Bank()
    agent = bank.agent(APPROVED, checkpointer=InMemorySaver())
    assert "__interrupt__" in bank.invoke(agent, mode, config=thread())
    assert bank.ahead == bank.ran == []
    rejected = Command(resume={"decisions": [{"type": "reject", "message": "no"}]})
    bank.invoke(agent, mode, rejected, config=thread())
    assert bank.ahead == bank.ran == []


@pytest.mark.parametrize("where", ["compile", "invoke"])
def test_nothing_runs_before_a_graph_that_stops_there_goes_on(where):
    stops = {"interrupt_before": ["tools"]}
    for make in (lambda bank, **how: bank.agent(**how), lambda bank, **how: bank.nodes().compile(**how)):
        bank = Bank()
        graph = make(bank, checkpointer=InMemorySaver(), **(stops if where == "compile" else {}))
        bank.invoke(graph, config=thread(), **(stops if where == "invoke" else {}))
        assert bank.ahead == bank.ran == []


def test_nor_where_it_stops_behind_the_model():
    bank = Bank()
    bank.invoke(bank.nodes().compile(checkpointer=InMemorySaver(), interrupt_after=["model"]), config=thread())
    assert bank.ahead == bank.ran == []


def asks(state):
    return {} if interrupt("sure?") == "yes" else {"messages": [AIMessage("no")]}


def asks_by_another_name(state):
    ask_somebody("sure?")


def asks_by_module(state):
    types.interrupt("sure?")


def asks_by_import(state):
    from langgraph.types import interrupt as ask

    ask("sure?")


class Desk:
    def ask(self, what):
        return interrupt(what)


DESK = Desk()


def asks_by_object(state):
    DESK.ask("sure?")


def asks_by_class(state):
    Desk().ask("sure?")


def desk():
    return DESK


class Office:
    """Asks in a method that others call."""

    def __init__(self):
        self.desks = SimpleNamespace(first=DESK)

    def __call__(self, state):
        return self._asked()

    def __enter__(self):
        return self._asked()

    def __exit__(self, *_):
        return None

    def __getattr__(self, name):
        if name != "whatever":
            raise AttributeError(name)
        return desk().ask

    def _asked(self):
        return self.desks.first.ask("sure?")


OFFICE, TABLE = Office(), {"ask": DESK.ask}


def asks_by_what_a_function_returns(state):
    desk().ask("sure?")


def asks_by_table(state):
    TABLE["ask"]("sure?")


def asks_by_with(state):
    with OFFICE:
        pass


def asks_by_any_name(state):
    OFFICE.whatever("sure?")


def asks_by_text(state):
    getattr(types, "inter" + "rupt")("sure?")


def asks_by_module_text(state):
    import_module("kit.apps.asking").approve("sure?")


def asks_by_import_when_it_runs(state):
    from kit.apps.asking import approve

    approve("sure?")


TYPED = {"__name__": "__main__", "ask": desk}
exec(compile("def typed(state):\n    ask().ask('sure?')\n", "<stdin>", "exec"), TYPED)
WAYS_TO_ASK = [
    asks,
    asks_by_another_name,
    asks_by_module,
    asks_by_import,
    asks_by_object,
    asks_by_class,
    asks_by_what_a_function_returns,
    asks_by_table,
    asks_by_with,
    asks_by_any_name,
    asks_by_text,
    asks_by_module_text,
    asks_by_import_when_it_runs,
    OFFICE,
    TYPED["typed"],
]


@pytest.mark.parametrize("where", ["between", "tools"])
@pytest.mark.parametrize("ask", WAYS_TO_ASK, ids=lambda one: getattr(one, "__name__", "a callable object"))
def test_nothing_runs_before_a_node_that_asks_a_person(ask, where):
    bank = Bank()

    def do(state):
        if where == "tools":
            ask(state)
        return {"messages": [bank.account.invoke(state["messages"][-1].tool_calls[0])]}

    between = [ask] if where == "between" else []
    out = bank.invoke(bank.nodes(do, between=between).compile(checkpointer=InMemorySaver()), config=thread())
    assert "__interrupt__" in out
    assert bank.ahead == bank.ran == []


def test_nothing_runs_before_an_installed_package_that_asks(monkeypatch):
    """As where an application is installed and not run from its sources: its files are beside those of libraries."""
    from sysconfig import get_path

    code = compile(
        "from langgraph.types import interrupt\n"
        "class Desk:\n    def ask(self, what):\n        return interrupt(what)\n"
        "DESK = Desk()\n"
        "def approve(state):\n    DESK.ask('sure?')\n",
        f"{get_path('purelib')}/installed_app/nodes.py",
        "exec",
    )
    module = ModuleType("installed_app.nodes")
    module.__file__ = code.co_filename
    exec(code, vars(module))
    monkeypatch.setitem(sys.modules, "installed_app.nodes", module)
    bank = Bank()

    def do(state):
        module.approve(state)
        return {"messages": [bank.account.invoke(state["messages"][-1].tool_calls[0])]}

    out = bank.invoke(bank.nodes(do).compile(checkpointer=InMemorySaver()), config=thread())
    assert "__interrupt__" in out
    assert bank.ahead == bank.ran == []


@pytest.mark.parametrize("asks_first", [False, True])
def test_an_entrypoint_that_asks_a_person(asks_first):
    """LangGraph's functional API: the entrypoint holds the tool, and asks or does not."""
    bank = Bank()
    llm = bank.vine.chat_model("model")

    @task
    def think(messages):
        return llm.bind_tools([bank.account]).invoke(messages)

    def plain(messages):
        asked = think(messages).result()
        return bank.account.invoke(asked.tool_calls[0]).text

    def asking(messages):
        asked = think(messages).result()
        return bank.account.invoke(asked.tool_calls[0]).text if interrupt("sure?") == "yes" else "denied"

    app = entrypoint(checkpointer=InMemorySaver())(asking if asks_first else plain)
    out = bank.invoke(app, inputs=[HumanMessage("mine?")], config=thread())
    assert bank.ahead == ([] if asks_first else ["mia"])
    assert ("__interrupt__" in out) if asks_first else (out == "account of mia")


def test_an_edge_that_asks_a_person():
    bank = Bank()

    def condition(state):
        return tools_condition(state) if interrupt("sure?") == "yes" else END

    bank.invoke(bank.nodes(condition=condition).compile(checkpointer=InMemorySaver()), config=thread())
    assert bank.ahead == bank.ran == []


def test_a_way_that_asks_is_not_the_only_one():
    """An edge decides whether a person is asked."""
    bank = Bank()
    graph = bank.nodes()
    graph.add_node("ask", asks)
    graph.add_edge("ask", "tools")
    graph.branches["model"].clear()
    graph.add_conditional_edges(
        "model", lambda state: "ask" if state["messages"][-1].tool_calls else END, ["ask", "tools", END]
    )
    assert "__interrupt__" in bank.invoke(graph.compile(checkpointer=InMemorySaver()), config=thread())
    assert bank.ahead == bank.ran == []


def test_what_a_node_between_may_change_is_not_called_ahead():
    bank = Bank()

    def guard(state):
        last = state["messages"][-1]
        calls = [{**one, "args": {"name": "nobody"}} for one in last.tool_calls]
        return {"messages": [last.model_copy(update={"tool_calls": calls})]}

    bank.invoke(bank.nodes(between=[guard]).compile())
    assert bank.ran == [("nobody", False)]


def refuses(request, execute):
    return ToolMessage("denied", tool_call_id=request.tool_call["id"])


def denied(state):
    return {"messages": [ToolMessage("denied", tool_call_id=state["messages"][-1].tool_calls[0]["id"])]}


class OwnToolNode(ToolNode):
    """Looks at the calls first."""

    def _func(self, state, *args, **kwargs):
        return denied(state)


@pytest.mark.parametrize("kind", ["wrapped", "derived", "chain", "function"])
def test_what_a_wrapper_around_the_tool_node_may_refuse_is_not_called_ahead(kind):
    bank = Bank()
    plain = ToolNode([bank.account])

    def guarded(state):
        return denied(state) if state else plain.invoke(state)

    nodes = {
        "wrapped": ToolNode([bank.account], wrap_tool_call=refuses),
        "derived": OwnToolNode([bank.account]),
        "chain": RunnableLambda(denied) | (lambda out: out or plain),
        "function": guarded,
    }
    bank.invoke(bank.nodes(nodes[kind]).compile())
    assert bank.ahead == bank.ran == []


def test_a_tool_inside_one_that_asks_is_not_called_ahead():
    """LangGraph's own example: a tool of the same name that asks a person, around the tool."""
    bank = Bank()
    inner = bank.account

    def account(name: str) -> str:
        """Return an account."""
        return inner.invoke({"name": name}) if interrupt(name) == "yes" else "denied"

    bank.account = StructuredTool.from_function(account)
    agent = bank.agent(checkpointer=InMemorySaver())
    assert "__interrupt__" in bank.invoke(agent, config=thread())
    assert bank.ahead == bank.ran == []


class Refusing(BaseCallbackHandler):
    raise_error = True

    def on_tool_start(self, *args, **kwargs):
        raise PermissionError("denied")


def test_what_a_callback_may_refuse_is_not_called_ahead():
    bank = Bank()
    with pytest.raises(PermissionError, match="denied"):
        bank.invoke(bank.agent(), config={"callbacks": [Refusing()]})
    assert bank.ahead == bank.ran == []


def test_what_the_tools_own_class_looks_at_first_is_not_called_ahead():
    bank = Bank()

    class Checked(StructuredTool):
        def invoke(self, input, config=None, **kwargs):
            return ToolMessage("denied", tool_call_id=input["id"])

    bank.account = bank.vine.tool(Checked.from_function(bank.plain()), read_only=True)
    assert bank.invoke(bank.agent())["messages"][-2].text == "denied"
    assert bank.ahead == bank.ran == []


def test_the_owner_may_say_so_for_a_tool():
    bank = Bank(unchecked=True)
    agent = bank.agent(APPROVED, checkpointer=InMemorySaver())
    assert "__interrupt__" in bank.invoke(agent, config=thread())
    assert bank.ahead == ["mia"]


def test_only_a_tool_that_reads_can_be_unchecked():
    from vinelm.errors import ConfigError

    bank = Bank()
    with pytest.raises(ConfigError, match="tool 'account' writes, and is never called ahead: leave unchecked= out"):
        bank.vine.tool(bank.plain(), writes="session", unchecked=True)


def test_a_graph_inside_has_tools_of_its_own():
    """The model of the outer graph is not the one that asks for them."""
    bank = Bank()

    def think(state: MessagesState, model) -> dict:
        return {"messages": [model.invoke("?")]}

    inner = StateGraph(MessagesState).add_node("tools", ToolNode([bank.account])).add_edge(START, "tools").compile()
    graph = StateGraph(MessagesState).add_node("model", bank.vine.stage("model", think)).add_node("inner", inner)
    bank.invoke(graph.add_edge(START, "model").add_edge("model", "inner").compile())
    assert bank.ahead == []
    assert bank.ran == [("mia", False)]
