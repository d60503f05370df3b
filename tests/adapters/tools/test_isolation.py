"""What runs ahead is the tool object that this run's graph holds, and its result answers that object's call only."""

import asyncio
import copy
import gc
import threading
import time
from weakref import ref

import pytest
from kit.apps.chat import calls_then
from kit.apps.streaming import PRICES, Chat
from kit.tool_episodes import TEMPLATE
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition

pytest.importorskip("langchain")
from langchain.agents import create_agent

from vinelm import Catalog, Speculation, VineLM, VineMiddleware
from vinelm.adapters.tools.declaring import declared_in


class FirstCall:
    """Guesses the call with which each session begins."""

    def candidates(self, history):
        return [("orders", {"year": 1}, 1.0)] if all(isinstance(one, str) for one in history) else []


USERS = 12
HOW = ("agent", "nodes", "by hand", "react")


class Shop:
    """One service: for each user an agent over one ``VineLM``, with a tool that closes over the user."""

    def __init__(self):
        self.ran = []
        self.chat = Chat(answer=calls_then("ok", ("orders", {"year": 1})))
        self.vine = VineLM(Catalog.from_chat_models({"m0": self.chat}, prices={"m0": PRICES}), template=TEMPLATE)
        self.vine.adapter.tools.candidates = FirstCall()

    def tool(self, user):
        def orders(year: int) -> str:
            """Return the orders of a year."""
            self.ran.append((user, threading.current_thread().name == "vinelm-read-ahead"))
            return f"orders of {user}"

        return self.vine.tool(orders, read_only=True)

    def graph(self, user, how="agent", tool=None):
        orders = tool or self.tool(user)
        if how == "agent":
            return create_agent(self.chat, [orders], middleware=[VineMiddleware(self.vine)])
        if how == "react":
            return create_react_agent(self.vine.chat_model("model"), [orders])

        def think(state: MessagesState, model) -> dict:
            return {"messages": [model.bind_tools([orders]).invoke(state["messages"])]}

        def do(state: MessagesState) -> dict:
            call = state["messages"][-1].tool_calls[0]
            return {"messages": [orders.invoke(call)]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", self.vine.stage("model", think))
        graph.add_node("tools", ToolNode([orders]) if how == "nodes" else do)
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        return graph.compile()

    @property
    def how(self):
        return {"context": self.vine.context(speculate=Speculation())}


def told(out):
    return out["messages"][-2].text


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize("how", HOW)
def test_no_user_is_told_the_orders_of_another(how):
    shop, begins = Shop(), threading.Barrier(USERS)
    found = {}

    def request(user):
        graph = shop.graph(user, how)
        begins.wait(30)  # all agents are built before the first of them runs
        found[user] = told(graph.invoke({"messages": [HumanMessage("mine?")]}, **shop.how))

    threads = [threading.Thread(target=request, args=(f"u{number}",)) for number in range(USERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {f"u{number}": f"orders of u{number}" for number in range(USERS)}
    assert any(is_ahead for _, is_ahead in shop.ran)
    assert {user for user, _ in shop.ran} == set(found)


def test_no_user_is_told_the_orders_of_another_on_one_event_loop():
    shop = Shop()

    async def request(user):
        async def orders(year: int) -> str:
            """Return the orders of a year."""
            await asyncio.sleep(0)
            return f"orders of {user}"

        graph = shop.graph(user, tool=shop.vine.tool(orders, read_only=True))
        await asyncio.sleep(0)
        return told(await graph.ainvoke({"messages": [HumanMessage("mine?")]}, **shop.how))

    async def main():
        return await asyncio.gather(*(request(f"u{number}") for number in range(48)))

    assert asyncio.run(main()) == [f"orders of u{number}" for number in range(48)]
    assert shop.vine.tool_counts["started"] == 48


def test_two_graphs_over_one_object_have_a_tool_each():
    """As two workflows do that are built from one function, over two sources."""
    shop = Shop()
    graphs = {user: shop.graph(user) for user in ("mia", "tom")}
    for user in ("mia", "tom", "mia"):
        shop.ran.clear()
        assert told(graphs[user].invoke({"messages": [HumanMessage("mine?")]}, **shop.how)) == f"orders of {user}"
        assert shop.ran == [(user, True)]


def test_a_tool_that_the_graph_does_not_hold_is_not_called_ahead_in_it():
    """The agent of one user has the tool; that of another has an ordinary one of the same name."""
    shop = Shop()
    kept = shop.tool("mia")

    def orders(year: int) -> str:
        """Return the orders of a year."""
        return "orders of tom"

    graph = shop.graph("tom", tool=StructuredTool.from_function(orders))
    assert told(graph.invoke({"messages": [HumanMessage("mine?")]}, **shop.how)) == "orders of tom"
    assert shop.ran == []
    assert kept.name == "orders"


def test_a_table_of_tools_by_user_names_no_tool_of_this_run():
    shop = Shop()
    tools = {}

    def think(state: MessagesState, model) -> dict:
        return {"messages": [model.invoke("?")]}

    def do(state: MessagesState) -> dict:
        tools["tom"] = shop.tool("tom")
        return {"messages": [AIMessage(tools["tom"].invoke({"year": 1})), AIMessage("ok")]}

    tools["mia"] = shop.tool("mia")
    graph = StateGraph(MessagesState).add_node("model", shop.vine.stage("model", think)).add_node("do", do)
    graph = graph.add_edge(START, "model").add_edge("model", "do").compile()
    assert told(graph.invoke({"messages": [HumanMessage("mine?")]}, **shop.how)) == "orders of tom"
    assert shop.ran == [("tom", False)]


def test_two_tools_of_one_name_in_one_graph_are_both_left_alone():
    shop = Shop()
    mia, tom = shop.tool("mia"), shop.tool("tom")

    def think(state: MessagesState, model) -> dict:
        return {"messages": [model.invoke("?")]}

    def do(state: MessagesState) -> dict:
        mine = tom if state["messages"][0].text == "tom" else mia
        return {"messages": [AIMessage(mine.invoke({"year": 1})), AIMessage("ok")]}

    graph = StateGraph(MessagesState).add_node("model", shop.vine.stage("model", think)).add_node("do", do)
    graph = graph.add_edge(START, "model").add_edge("model", "do").compile()
    assert told(graph.invoke({"messages": [HumanMessage("tom")]}, **shop.how)) == "orders of tom"
    assert shop.ran == [("tom", False)]


@pytest.mark.parametrize("copied", ["model_copy", "copy", "deepcopy"])
def test_a_copy_with_another_function_is_another_tool(copied):
    """Declared once, and copied for each user."""
    shop = Shop()
    plain = shop.tool("nobody")

    def orders(year: int) -> str:
        return "orders of mia"

    mine = plain.model_copy() if copied == "model_copy" else getattr(copy, copied)(plain)
    mine.func = orders
    assert told(shop.graph("mia", tool=mine).invoke({"messages": [HumanMessage("mine?")]}, **shop.how)) == "orders of mia"
    assert mine.invoke({"year": 1}) == "orders of mia"
    assert plain.invoke({"year": 1}) == "orders of nobody"
    assert shop.ran == [("nobody", False)]


def test_fields_that_change_between_are_those_of_another_call():
    shop = Shop()

    class Orders(BaseTool):
        name: str = "orders"
        description: str = "Orders."
        user: str = "nobody"

        def _run(self, year: int) -> str:
            shop.ran.append(self.user)
            return f"orders of {self.user}"

    orders = shop.vine.tool(Orders(), read_only=True)
    with shop.vine.request(speculate=Speculation()):
        memory = shop.vine.adapter.reads_finder.here()
        assert memory.start(declared_in(shop.vine.adapter.tools, orders), {"year": 1}, "speculated", 1.0)
        orders.user = "mia"
        assert orders.invoke({"year": 1}) == "orders of mia"
    assert orders.invoke({"year": 1}) == "orders of mia"


def test_classes_of_tools_that_are_made_for_each_user():
    shop = Shop()

    def made(user):
        class Orders(BaseTool):
            name: str = "orders"
            description: str = "Orders."

            def _run(self, year: int) -> str:
                return f"orders of {user}"

        return shop.vine.tool(Orders(), read_only=True)

    graphs = {user: shop.graph(user, tool=made(user)) for user in ("mia", "tom")}
    for user, graph in graphs.items():
        assert told(graph.invoke({"messages": [HumanMessage("mine?")]}, **shop.how)) == f"orders of {user}"
    assert shop.vine.tool_counts["started"] == 2


def test_what_a_user_has_built_is_not_kept():
    shop, told_of = Shop(), []

    class Account:
        """Of one user."""

    def request():
        account = Account()
        told_of.append(ref(account))
        graph = shop.graph(account)
        graph.invoke({"messages": [HumanMessage("mine?")]}, **shop.how)
        shop.ran.clear()

    request()
    for _ in range(500):  # until the threads of the run have ended
        gc.collect()
        if told_of[0]() is None:
            break
        time.sleep(0.01)
    assert told_of[0]() is None


def test_outside_of_a_graph_it_is_what_was_bound_to_the_model():
    shop = Shop()
    mia, tom = shop.tool("mia"), shop.tool("tom")
    llm = shop.vine.chat_model("model")
    with shop.vine.request(speculate=Speculation()):
        asked = llm.bind_tools([tom]).invoke([HumanMessage("mine?")])
        assert tom.invoke(asked.tool_calls[0]).text == "orders of tom"
    assert shop.ran == [("tom", True)]
    with shop.vine.request(speculate=Speculation()):
        llm.invoke([HumanMessage("mine?")])
        assert mia.invoke({"year": 1}) == "orders of mia"
    assert shop.ran == [("tom", True), ("mia", False)]


def test_a_call_of_a_model_that_is_a_request_of_its_own_starts_nothing():
    """Nobody would take the result."""
    shop = Shop()
    kept = shop.tool("mia")
    shop.vine.adapter.tools.speculation = Speculation()
    shop.vine.chat_model("model").bind_tools([kept]).invoke([HumanMessage("mine?")])
    assert shop.ran == []
    assert shop.vine.tool_counts == {}
