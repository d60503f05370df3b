"""Which request a call belongs to, and that its cap holds, wherever it is made: in threads, pools, executors and tools."""

import asyncio
import contextvars
import logging
import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from kit.apps.paying import CAP, COST, OBJECTIVE, Till, vine_of
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ContextThreadPoolExecutor
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from vinelm import Objective
from vinelm.errors import CallRefused, ConfigError

CALLS = 12
MOST = round(CAP / COST)
"""Calls that a cap of $1 allows, at $0.1 each: fewer are made, since a call is let through only if $0.3 are left."""


class State(TypedDict, total=False):
    out: list


@pytest.fixture
def till():
    return Till()


def graph_of(node, **compiled):
    graph = StateGraph(State)
    graph.add_node("n", node)
    graph.add_edge(START, "n")
    graph.add_edge("n", END)
    return graph.compile(**compiled)


# -- ways of an application to call in threads of its own that do not know the request ------------------------------


def pool(call):
    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(call, range(CALLS)))


def submitted(call):
    with ThreadPoolExecutor(4) as threads:
        return [one.result() for one in [threads.submit(call, i) for i in range(CALLS)]]


def thread(call):
    found, errors = [], []

    def run(i):
        try:
            found.append(call(i))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(CALLS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if errors:
        raise errors[0]
    return found


async def executor(call):
    loop = asyncio.get_running_loop()
    return await asyncio.gather(*(loop.run_in_executor(None, call, i) for i in range(CALLS)))


SHARED = ThreadPoolExecutor(2)
"""A pool of the whole process: its threads were started by another request, or by none."""


def shared(call):
    return list(SHARED.map(call, range(CALLS)))


BARE = [pool, submitted, thread, executor, shared]


# -- what is called -------------------------------------------------------------------------------------------------


def chat(vine):
    model = vine.chat_model("n")
    return lambda i: model.invoke(str(i)).text


def unnamed(vine):
    model = vine.chat_model()
    return lambda i: model.invoke(str(i)).text


def bound(vine):
    model = vine.chat_model("n").with_config(tags=["a"]).bind(stop=["x"])
    return lambda i: model.invoke(str(i)).text


def streamed(vine):
    model = vine.chat_model("n")
    return lambda i: "".join(chunk.text for chunk in model.stream(str(i)))


def loop_of_its_own(vine):
    model = vine.chat_model("n")
    return lambda i: asyncio.run(model.ainvoke(str(i))).text


def stage(vine):
    @vine.stage("n")
    def ask(state: State, model):
        return {"out": [model.invoke(str(state)).text]}

    return lambda i: ask({"out": [i]})["out"][0]


def subgraph(vine):
    model = vine.chat_model("n")
    inner = graph_of(lambda state: {"out": [model.invoke("inner").text]})
    return lambda i: inner.invoke({"out": []})["out"][0]


def subgraph_of_stages(vine):
    inner = graph_of(vine.stage("n", lambda state, model: {"out": [model.invoke("inner").text]}, state=State))
    return lambda i: inner.invoke({"out": []})["out"][0]


def priced_tool(vine):
    @vine.tool(writes="session", cost_usd=COST)
    def fetch(i: int) -> str:
        """Fetch."""
        vine.models.backends["payer"].app.pay(str(i))
        return "42"

    return lambda i: fetch.invoke({"i": i})


CALLED = [chat, unnamed, bound, streamed, loop_of_its_own, stage, subgraph, subgraph_of_stages, priced_tool]


def served(vine, way, call, context, **settings):
    """The graph whose node makes the calls that way."""
    if asyncio.iscoroutinefunction(way):

        async def anode(state: State):
            return {"out": list(await way(call))}

        return asyncio.run(graph_of(anode).ainvoke({"out": []}, context=context, **settings))["out"]
    return graph_of(lambda state: {"out": list(way(call))}).invoke({"out": []}, context=context, **settings)["out"]


@pytest.mark.parametrize("way", BARE)
@pytest.mark.parametrize("called", CALLED)
def test_under_a_cap_a_thread_that_does_not_know_its_request_is_refused(till, way, called):
    """Each call was a request of its own, without a cap: all twelve were sent, $1.2 of $1."""
    vine = vine_of(till)
    with pytest.raises(CallRefused, match="copy_context") as refused:
        served(vine, way, called(vine), vine.context(OBJECTIVE))
    assert till.paid == []
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("way", BARE)
@pytest.mark.parametrize("called", [one for one in CALLED if one is not unnamed])
@pytest.mark.parametrize("objective", [None, Objective(maximize="accuracy")])
def test_without_a_cap_every_call_is_answered(till, way, called, objective):
    vine = vine_of(till)
    assert served(vine, way, called(vine), vine.context(objective)) == ["42"] * CALLS
    assert len(till.paid) == CALLS


def test_a_name_is_not_advised_where_it_would_not_help(till):
    vine = vine_of(till)
    with pytest.raises(ConfigError, match="copy_context"):
        served(vine, pool, unnamed(vine), vine.context(None))


# -- ways that carry the context --------------------------------------------------------------------------------------


def copied(call):
    with ThreadPoolExecutor(4) as threads:
        return [one.result() for one in [threads.submit(contextvars.copy_context().run, call, i) for i in range(CALLS)]]


def langchains(call):
    with ContextThreadPoolExecutor(4) as threads:
        return list(threads.map(call, range(CALLS)))


async def to_thread(call):
    return await asyncio.gather(*(asyncio.to_thread(call, i) for i in range(CALLS)))


def plain_loop(call):
    return [call(i) for i in range(CALLS)]


@pytest.mark.parametrize("way", [copied, langchains, to_thread, plain_loop])
@pytest.mark.parametrize("called", [one for one in CALLED if one not in (subgraph, subgraph_of_stages)])
def test_where_the_context_is_carried_all_calls_are_of_one_request(till, way, called):
    vine = vine_of(till)
    with pytest.raises(CallRefused, match=r"left of the request's \$1"):
        served(vine, way, called(vine), vine.context(OBJECTIVE))
    assert 0 < len(till.paid) <= MOST


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_node_s_config_names_the_request_too(till, is_streamed):
    vine = vine_of(till)
    model = vine.chat_model()

    def node(state: State, config: RunnableConfig):
        def call(i):
            return "".join(c.text for c in model.stream("?", config)) if is_streamed else model.invoke("?", config).text

        with ThreadPoolExecutor(4) as threads:
            return {"out": list(threads.map(call, range(CALLS)))}

    with pytest.raises(CallRefused, match=r"left of the request's \$1"):
        graph_of(node).invoke({"out": []}, context=vine.context(OBJECTIVE))
    assert 0 < len(till.paid) <= MOST


def test_a_with_block_is_not_seen_in_its_threads_either(till):
    vine = vine_of(till)
    call = chat(vine)
    with vine.request(OBJECTIVE), pytest.raises(CallRefused, match="copy_context"):
        pool(call)
    with vine.request(OBJECTIVE), pytest.raises(CallRefused, match="left of the request"):
        copied(call)
    assert 0 < len(till.paid) <= MOST


def test_the_cap_of_another_object_s_request_holds(till):
    """The model was made by an object that has never heard of the cap."""
    vine, other = vine_of(till), vine_of(till)
    with pytest.raises(CallRefused, match="copy_context"):
        served(vine, pool, chat(other), vine.context(OBJECTIVE))
    assert till.paid == []


def test_a_cap_in_json_holds_once_a_node_has_been_seen(till):
    vine = vine_of(till)
    call = chat(vine)

    def node(state: State):
        call(0)
        return {"out": pool(call)}

    with pytest.raises(CallRefused, match="copy_context"):
        graph_of(node).invoke({"out": []}, context={"vinelm": OBJECTIVE.to_dict()})
    assert len(till.paid) == 1


# -- what belongs to no request with a cap ----------------------------------------------------------------------------


def test_others_go_on_where_requests_have_caps(till):
    """Code that a request's context would have reached is a request of its own; a bare thread can say that it is."""
    vine = vine_of(till)
    call = chat(vine)
    inner = graph_of(lambda state: {"out": [call(0)]})

    def declared(i):
        with vine.request():
            return call(i)

    vine.context(OBJECTIVE)
    assert plain_loop(call) == ["42"] * CALLS
    assert asyncio.run(to_thread(call)) == ["42"] * CALLS
    assert pool(declared) == ["42"] * CALLS
    for context in (vine.context(), {"vinelm": {}}):
        assert pool(lambda i, given=context: inner.invoke({"out": []}, context=given)["out"][0]) == ["42"] * CALLS
    with pytest.raises(CallRefused, match="copy_context"):  # also where its request is over: somebody has to pay
        pool(call)


def test_a_run_that_has_begun_before_there_was_a_cap_goes_on(till):
    vine = vine_of(till)
    call = chat(vine)

    def node(state: State):
        first = call(0)
        vine.context(OBJECTIVE)
        return {"out": [first, call(1)]}

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(lambda: graph_of(node).invoke({"out": []})["out"]).result() == ["42", "42"]


def test_an_object_that_makes_its_own_contexts_does_not_hear_of_others_caps(till):
    vine, other = vine_of(till), vine_of(till)
    other.context()
    vine.context(OBJECTIVE)
    assert pool(chat(other)) == ["42"] * CALLS
    assert pool(chat(vine_of(till))) == ["42"] * CALLS  # made after it


def test_an_objective_of_the_model_itself_caps_no_other_thread(till):
    vine = vine_of(till)
    model = vine.chat_model("n", objective=OBJECTIVE)
    assert pool(lambda i: model.invoke("?").text) == ["42"] * CALLS


def test_nothing_is_refused_where_nothing_is_enforced(till):
    vine = vine_of(till, mode="observe")
    assert served(vine, pool, chat(vine), vine.context(OBJECTIVE)) == ["42"] * CALLS


def test_the_log_says_once_that_a_thread_does_not_know_its_request(till, caplog):
    vine = vine_of(till)
    with caplog.at_level(logging.WARNING, logger="vinelm"):
        pool(chat(vine))
        pool(chat(vine))
    assert [line for line in caplog.messages if "copy_context" in line] == caplog.messages[:1]


def test_a_thread_is_not_believed_because_an_object_was_made_in_it(till):
    """The first thread of a pool that serves everybody: what is made there says nothing of what runs there later."""
    with ThreadPoolExecutor(1) as threads:
        vine = threads.submit(vine_of, till).result()
        vine.context(OBJECTIVE)
        with pytest.raises(CallRefused, match="copy_context"):
            threads.submit(chat(vine), 0).result()


@pytest.mark.parametrize("part", ["run_here", "call"])
def test_the_cap_holds_where_the_finder_itself_fails(till, part, monkeypatch):
    vine = vine_of(till)
    call = chat(vine)

    def broken(*args, **given):
        raise RuntimeError("a defect")

    monkeypatch.setattr(vine.adapter.finder if part == "run_here" else vine.adapter, part, broken)
    with pytest.raises(CallRefused):
        served(vine, pool, call, vine.context(OBJECTIVE))
    assert till.paid == []


# -- without a trie -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("called", [chat, stage, priced_tool])
@pytest.mark.parametrize("on_error", ["default", "raise"])
def test_without_a_trie_a_cap_holds(till, called, on_error):
    """All twelve were sent: nothing was planned, and nothing capped."""
    vine = vine_of(till, on_error=on_error)
    with pytest.raises(CallRefused, match=r"left of the request's \$1"):
        served(vine, plain_loop, called(vine), vine.context(OBJECTIVE))
    assert 0 < len(till.paid) <= MOST


def test_without_a_trie_models_and_tools_pay_from_one_cap(till):
    vine = vine_of(till)
    ask, fetch = chat(vine), priced_tool(vine)
    with pytest.raises(CallRefused):
        served(vine, plain_loop, lambda i: (fetch if i % 2 else ask)(i), vine.context(OBJECTIVE))
    assert 0 < len(till.paid) <= MOST


def test_a_mean_is_no_cap(till):
    vine = vine_of(till)
    call, objective = chat(vine), Objective(maximize="accuracy", max_cost_usd=0.0001)
    assert served(vine, plain_loop, call, vine.context(objective)) == ["42"] * CALLS


@pytest.mark.parametrize("called", [chat, stage, priced_tool])
def test_without_a_trie_a_cap_holds_over_all_runs_of_a_request(till, called):
    vine = vine_of(till)
    call = called(vine)

    def node(state: State):
        for i in range(4):
            call(i)
        interrupt("go on?")
        return {"out": []}

    graph, thread_of = graph_of(node, checkpointer=InMemorySaver()), {"configurable": {"thread_id": "t"}}
    graph.invoke({"out": []}, thread_of, context=vine.context(OBJECTIVE))
    refused = []
    for again in (None, None, Command(resume="yes"), None, None):  # each runs the node anew: it asks again, or is refused
        try:
            graph.invoke(again, thread_of, context=vine.context(OBJECTIVE))
        except CallRefused as error:
            refused.append(str(error))
    assert refused
    assert all("left of the request" in line for line in refused)
    assert 0 < len(till.paid) <= MOST


def test_the_trace_says_which_call_was_refused(till):
    vine = vine_of(till)
    session = vine.session(OBJECTIVE)
    with pytest.raises(CallRefused):
        served(vine, plain_loop, chat(vine), vine.context(OBJECTIVE, policy=session))
    assert [step["kind"] for step in session.trace()] == ["refused"]
    assert "call refused" in session.explain()


def test_a_tool_of_another_object_pays_from_the_request_s_cap(till):
    """It had no memory of the run, and so nobody to ask."""
    vine, other = vine_of(till), vine_of(till)
    with pytest.raises(CallRefused, match=r"left of the request's \$1"):
        served(vine, plain_loop, priced_tool(other), vine.context(OBJECTIVE))
    assert 0 < len(till.paid) <= MOST


# -- processes ---------------------------------------------------------------------------------------------------


class CountedTill(Till):
    """One that hears of calls in forks, too."""

    def __init__(self, path):
        super().__init__()
        self._path = path
        path.touch()

    def pay(self, name):
        with self._path.open("ab", buffering=0) as file:
            file.write(b"x")

    @property
    def calls(self):
        return self._path.stat().st_size


def call_in_fork(i):
    llm = FORKED[0]
    try:
        return llm.invoke("q").text
    except CallRefused as error:
        return str(error)


FORKED = []
"""The model that forks call: they inherit it."""


def processes():
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("fork")) as pool:
        return list(pool.map(call_in_fork, range(CALLS)))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("where", ["node", "bare thread", "with-block"])
def test_forks_do_not_spend_the_cap_once_each(tmp_path, where, is_first):
    till = CountedTill(tmp_path / "paid")
    vine = vine_of(till)
    FORKED[:] = [vine.chat_model("s")]

    def node(state=None):
        own = [] if is_first else [call_in_fork(0)]
        if where != "bare thread":
            return {"out": own + processes()}
        with ThreadPoolExecutor(1) as threads:
            return {"out": own + threads.submit(processes).result()}

    if where == "with-block":
        with vine.request(OBJECTIVE):
            out = node()["out"]
    else:
        out = graph_of(node).invoke({}, context=vine.context(OBJECTIVE))["out"]
    said = out if is_first else out[1:]
    assert all("copy_context" in one for one in said)
    assert till.calls == (not is_first)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_fork_serves_requests_of_its_own(tmp_path):
    """As the processes of a server do that has loaded the application before."""
    till = CountedTill(tmp_path / "paid")
    vine = vine_of(till)
    FORKED[:] = [vine.chat_model("s")]
    graph = graph_of(lambda state: {"out": [call_in_fork(0)]})

    def serve():
        assert graph.invoke({}, context=vine.context(OBJECTIVE))["out"] == ["42"]

    serve()
    child = multiprocessing.get_context("fork").Process(target=serve)
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert till.calls == 2


def test_the_log_says_once_that_a_task_outside_of_a_request_calls_under_no_cap(till, caplog):
    """One that reads a queue, begun with the application: it may work for a request, or for none."""
    vine = vine_of(till)
    llm = vine.chat_model("s")

    async def main():
        waiting = asyncio.Queue()

        async def work():
            while True:
                found = await waiting.get()
                found.set_result((await llm.ainvoke("q")).text)

        worker = asyncio.create_task(work())

        async def node(state):
            found = [asyncio.get_running_loop().create_future() for _ in range(3)]
            for one in found:
                waiting.put_nowait(one)
            return {"out": [await one for one in found]}

        out = await graph_of(node).ainvoke({}, context=vine.context(OBJECTIVE))
        worker.cancel()
        return out

    with caplog.at_level(logging.WARNING, "vinelm"):
        assert asyncio.run(main())["out"] == ["42"] * 3
    assert [record.getMessage().count("under no cap") for record in caplog.records] == [1]
