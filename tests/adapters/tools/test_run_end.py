"""A run is over when its graph ends, however it ends: calls ahead are cancelled then; those that refuse are heard no more."""

import asyncio

import pytest
from kit.apps.echo import EchoBackend
from kit.catalogs import make_catalog
from kit.tool_episodes import TEMPLATE
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from vinelm import Speculation, VineLM
from vinelm.adapters.langgraph import GraphAdapter
from vinelm.adapters.tools.declaring import declared_in
from vinelm.adapters.tools.run_end import _GRAPHS, _MEMORIES
from vinelm.backends.resolver import ModelResolver
from vinelm.policies import ForcedPolicy

THREAD = {"configurable": {"thread_id": "t"}}


class App:
    """One stage, while which a read starts that does not end when it is told to; then a node that ends as the test says."""

    def __init__(self, then=lambda: None):
        self.vine = GraphAdapter(ModelResolver(make_catalog(1), {"test": EchoBackend()}), template=TEMPLATE, enforces=True)
        self.told, self.held, self.begun, self.let_go = [], [], asyncio.Event(), asyncio.Event()

        @self.vine.tool(read_only=True, unchecked=True)  # though what comes after may ask a person
        async def look(item: str) -> str:
            """Look an item up."""
            self.begun.set()
            while not self.let_go.is_set():
                try:
                    await self.let_go.wait()
                except asyncio.CancelledError:
                    self.told.append(item)
            return item

        self.vine.tools.candidates = self
        self.then, self.look = then, look

    def candidates(self, history):
        return [("look", {"item": "tea"}, 0.9)]

    async def think(self, state: MessagesState, model) -> dict:
        self.held += self.vine.finder.runs._by_control.values()  # nothing is collected
        await self.begun.wait()
        return {"messages": [AIMessage("thought")]}

    async def go_on(self, state: MessagesState) -> dict:
        found = self.then() or self.look.name
        if asyncio.iscoroutine(found):
            found = await found
        return {"messages": [AIMessage(str(found))]}

    def graph(self, saver=None):
        graph = StateGraph(MessagesState)
        graph.add_node("model", self.vine.stage("model", self.think))
        graph.add_node("then", self.go_on)
        graph.add_edge(START, "model")
        graph.add_edge("model", "then")
        graph.add_edge("then", END)
        return graph.compile(checkpointer=saver)

    @property
    def how(self):
        policy = ForcedPolicy(TEMPLATE, ("m0",) * 9)
        return {"context": self.vine.context(policy=policy, speculate=Speculation())}

    async def is_told(self):
        """Whether the read has been told to end, soon after the run."""
        for _ in range(3):
            await asyncio.sleep(0)
        assert not _MEMORIES
        self.let_go.set()
        return self.told == ["tea"] and self.vine.tools.counts["unused"] == 1


def fails():
    raise ValueError("of the application")


async def invoked(app):
    await app.graph().ainvoke({"messages": []}, **app.how)


async def streamed(app):
    async for _ in app.graph().astream({"messages": []}, **app.how):
        assert app.told == []


async def left_early(app):
    stream = app.graph().astream({"messages": []}, **app.how)
    await anext(stream)
    await stream.aclose()


async def failed(app):
    app.then = fails
    with pytest.raises(ValueError, match="of the application"):
        await app.graph().ainvoke({"messages": []}, **app.how)


async def interrupted(app):
    app.then = lambda: interrupt("well?")
    await app.graph(InMemorySaver()).ainvoke({"messages": []}, THREAD, **app.how)


async def cancelled(app):
    app.then = lambda: asyncio.sleep(60)
    task = asyncio.create_task(app.graph().ainvoke({"messages": []}, **app.how))
    await app.begun.wait()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def timed_out(app):
    app.then = lambda: asyncio.sleep(60)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(app.graph().ainvoke({"messages": []}, **app.how), 0.05)


async def inside_a_chain(app):
    """The graph ends before what is around it."""

    async def around(_):
        await app.graph().ainvoke({"messages": []}, **app.how)
        assert await app.is_told()

    await RunnableLambda(around).ainvoke(None)


async def inside_a_graph(app):
    """A graph inside a node is a part of the run: it goes on, and so does what was read ahead."""
    outer = StateGraph(MessagesState)

    async def node(state: MessagesState) -> dict:
        await app.graph().ainvoke({"messages": []})
        await asyncio.sleep(0)
        assert app.told == []
        return {}

    outer.add_node("node", node)
    outer.add_edge(START, "node")
    await outer.compile().ainvoke({"messages": []}, **app.how)


@pytest.mark.parametrize(
    "ends", [invoked, streamed, left_early, failed, interrupted, cancelled, timed_out, inside_a_chain, inside_a_graph]
)
def test_however_the_graph_ends(ends):
    async def main():
        app = App()
        try:
            await ends(app)
            assert app.held
            assert await app.is_told()
        finally:
            app.let_go.set()  # else nothing ends the event loop

    before = set(_GRAPHS)  # another test may have left a graph that never ends
    asyncio.run(main())
    assert set(_GRAPHS) <= before


def test_a_run_that_is_resumed_begins_with_nothing_and_reads_ahead_again():
    async def main(app):
        graph = app.graph(InMemorySaver())
        await graph.ainvoke({"messages": []}, THREAD, **app.how)
        for _ in range(3):
            await asyncio.sleep(0)
        assert app.told == ["tea"]
        out = await graph.ainvoke(Command(resume="yes"), THREAD, **app.how)
        again = await graph.ainvoke({"messages": []}, THREAD, **app.how)
        for _ in range(3):
            await asyncio.sleep(0)
        return [message.text for message in out["messages"]], again["__interrupt__"][0].value

    async def within():
        app = App(lambda: interrupt("well?"))
        try:
            return (*await main(app), app)
        finally:
            app.let_go.set()

    texts, asked, app = asyncio.run(within())
    assert texts == ["thought", "yes"]
    assert asked == "well?"
    assert app.told == ["tea", "tea"]
    assert app.vine.tools.counts["started"] == app.vine.tools.counts["unused"] == 2


def test_a_run_of_a_with_block_ends_with_it_and_not_with_a_chain_inside():
    vine = VineLM(make_catalog(1), template=TEMPLATE)

    @vine.tool(read_only=True)
    def look(item: str) -> str:
        """Look an item up."""
        return item

    known = declared_in(vine.adapter.tools, look)
    with vine.request(speculate=Speculation()):
        RunnableLambda(lambda _: look.invoke({"item": "tea"})).invoke(None)
        memory = vine.adapter.reads_finder.here()
        assert memory.start(known, {"item": "milk"}, "speculated", 1.0)
        while memory._running():
            pass
    assert not memory.start(known, {"item": "rice"}, "speculated", 1.0)
    assert vine.tool_counts == {"reads": 1, "started": 1, "unused": 1}
