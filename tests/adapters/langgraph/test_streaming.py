"""Tokens reach the caller exactly once, and what a stage asks LangGraph for by name reaches the stage."""

import asyncio

import pytest
from kit.apps.echo import KINDS, MODES, TOKENS, App, Typed, control, forced, run
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore

from vinelm.adapters.langgraph.path.path_channel import PATH_KEY

PATH = ["m2", "m0", "m1"]


async def collect(stream):
    return [item async for item in stream]


@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_stream_mode_messages_gives_each_token_once(schema, mode):
    vine = control()
    graph = App(schema, mode).build(vine).compile()
    asked = {"context": vine.context(policy=forced(vine, PATH)), "stream_mode": "messages"}
    if mode == "sync":
        items = list(graph.stream({"q": "?"}, **asked))
    else:
        items = asyncio.run(collect(graph.astream({"q": "?"}, **asked)))
    tokens = [(message.content, meta["langgraph_node"]) for message, meta in items if message.content]
    assert tokens == [(token, node) for node in ("generate", "repair", "repair") for token in TOKENS]


def test_astream_events_gives_each_token_once():
    vine = control()
    graph = App(mode="async").build(vine).compile()
    context = vine.context(policy=forced(vine, PATH))
    events = asyncio.run(collect(graph.astream_events({"q": "?"}, context=context, version="v2")))
    tokens = [e["data"]["chunk"].content for e in events if e["event"] == "on_chat_model_stream"]
    assert [token for token in tokens if token] == list(TOKENS) * 3
    assert sum(e["event"] == "on_chat_model_end" for e in events) == 3


def test_the_path_is_visible_to_whoever_streams_values_or_updates():
    vine = control()
    graph = App(turns=1).build(vine).compile()
    context = vine.context(policy=forced(vine, PATH))
    values = list(graph.stream({"q": "?"}, context=context, stream_mode="values"))
    updates = list(graph.stream({"q": "?"}, context=context, stream_mode="updates"))
    entry = {"k": 0, "stage": "generate", "model": "m2", "usd": 0.01}
    assert values[-1].get(PATH_KEY, {"path": [entry]})["path"] == [entry]
    assert updates[0]["generate"][PATH_KEY] == [entry]


@pytest.mark.parametrize("mode", MODES)
def test_a_stage_gets_what_it_asks_for_by_name(mode):
    vine = control()
    got = {}

    def note(writer, **given):
        got.update(given)
        writer({"custom": 1})
        return {"a": "done"}

    def sync(state: Typed, model, config: RunnableConfig, runtime: Runtime, *, writer, store, previous):
        return note(writer, model=model, config=config, runtime=runtime, store=store, previous=previous)

    async def asynchronous(state: Typed, model, config: RunnableConfig, runtime: Runtime, *, writer, store, previous):
        return note(writer, model=model, config=config, runtime=runtime, store=store, previous=previous)

    graph = StateGraph(Typed)
    graph.add_node("generate", vine.stage("generate", sync if mode == "sync" else asynchronous))
    graph.add_edge(START, "generate")
    graph.add_edge("generate", END)
    store = InMemoryStore()
    app = graph.compile(store=store)
    context = vine.context(user={"tenant": "acme"}, policy=forced(vine, PATH))
    config = {"configurable": {"mine": 7}}
    if mode == "sync":
        custom = list(app.stream({"q": "?"}, config, context=context, stream_mode="custom"))
    else:
        custom = asyncio.run(collect(app.astream({"q": "?"}, config, context=context, stream_mode="custom")))
    assert custom == [{"custom": 1}]
    assert got["config"]["configurable"]["mine"] == 7
    assert got["runtime"].context["tenant"] == "acme"
    assert got["store"] is store
    assert got["previous"] is None
    assert got["model"].name_ == "m2"


@pytest.mark.parametrize("mode", MODES)
def test_a_callback_sees_one_chain_per_node_and_no_more(mode):
    """The wrapper adds no run of its own to a trace."""
    from langchain_core.callbacks import BaseCallbackHandler

    class Names(BaseCallbackHandler):
        def __init__(self):
            self.names = []

        def on_chain_start(self, serialized, inputs, *, name=None, **kwargs):
            self.names.append(name)

    vine = control()
    names = Names()
    graph = App(mode=mode, turns=1).build(vine).compile()
    run(graph, mode, {"q": "?"}, {"callbacks": [names]}, context=vine.context(policy=forced(vine, PATH)))
    assert names.names == ["LangGraph", "generate", "execute", "finished"]
