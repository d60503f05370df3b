"""The cap of one request, kept call by call: on a real server on loopback, through the graph and through each way to call."""

import asyncio
import datetime
import json
import threading
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypedDict

import numpy as np
import pytest
from kit.tables import random_table
from kit.wire.server import end_connections
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy

from vinelm import VineChatModel, VineLM
from vinelm.backends import RecordedBackend, TextWriter, create_backends
from vinelm.backends.offline.presets import simulated_catalog
from vinelm.backends.offline.simulated import SimulatedBackend
from vinelm.catalog import Catalog, Model, Price
from vinelm.clock import VirtualClock
from vinelm.controller import Planner, Session
from vinelm.errors import CallError, CallRefused
from vinelm.money.spend_guard import SpendGuard
from vinelm.objective import Objective
from vinelm.requests.protocols import CallContext, Invocation
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Usage
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie

COMPLETION = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 500, "completion_tokens": 5, "total_tokens": 505},
}  # fmt: skip


PRICE = Price(input=1.0, output=1.0, source="a test", as_of=datetime.date(2026, 1, 1))


def usage(cost_usd):
    return Usage(model="m0", cost_usd=cost_usd, latency_s=1.0)


EACH = Objective(maximize="accuracy", max_cost_usd=0.05, cost_budget="per_request")


def session_of(planner, objective=EACH, **settings):
    return Session(planner, objective, clock=VirtualClock(), **settings)


@pytest.fixture
def planner():
    return Planner(random_table(3, n_requests=60, n_models=3, depth=3).annotate())


def test_a_stage_that_is_run_again_gets_another_model_and_the_trace_says_why(planner):
    session = session_of(planner)
    models = []
    for _ in range(3):
        model = session.next_model("generate", ())
        models.append(model)
        with pytest.raises(CallRefused) as refused:
            session.guard.authorize(1.0)
        session.record(
            Invocation(stage="generate", prefix=(model,), latency_s=0.1, failure="budget", detail=str(refused.value))
        )
    assert sorted(models) == ["m0", "m1", "m2"]
    steps = [step for step in session.trace() if step["kind"] == "refused"]
    assert [step["model"] for step in steps] == models
    assert all("call refused: the call may cost up to $1.000000" in step["note"] for step in steps)
    assert "call refused" in session.explain()
    assert session.next_model("generate", ()) == "m0"  # nothing is left to plan with
    assert "no path leads on" in session.steps[-1].note


def test_a_model_whose_smallest_call_does_not_fit_is_not_planned(planner):
    wanted = planner.plan(EACH).next_model
    least = {wanted: 0.06}
    session = session_of(planner, least_call_usd=lambda model: least.get(model, 0.001))
    assert session.next_model("generate", ()) != wanted
    poor = session_of(planner, least_call_usd=lambda model: 0.06)
    poor.record(Invocation(stage="generate", prefix=("m0",), latency_s=0.1, usages=(usage(0.001),)))
    assert poor.should_continue(("m0",), False, {}) is False  # an answer exists, and no call after it could start


def test_without_a_cap_of_its_own_a_request_has_no_guard(planner):
    assert session_of(planner, Objective(maximize="accuracy", max_cost_usd=0.05)).guard is None
    assert session_of(planner, Objective(maximize="accuracy")).guard is None
    assert session_of(planner, mode="observe").guard is None
    assert session_of(planner, mode="off").guard is None


# -- through a graph, on simulated and recorded models ---------------------------------------------------------------


class Priced(SimulatedBackend):
    """Simulated models whose calls cost what ``prices`` says."""

    def __init__(self, catalog, prices):
        super().__init__(TextWriter("answer"), catalog=catalog)
        self.prices = prices

    def answer(self, model, call, prompt_chars):
        text, said = super().answer(model, call, prompt_chars)
        return text, replace(said, cost_usd=self.prices[model.name])


def three_simulated():
    everything = simulated_catalog()
    return everything.subset(tuple(everything)[:3])


REQUESTS = [Request(f"q{i}", {"question": "?", "answer": "42"}) for i in range(20)]
WAYS = ("invoke", "ainvoke", "stream", "astream")


@pytest.mark.parametrize("way", WAYS)
def test_a_simulated_call_is_refused_by_its_very_price_whatever_the_way_to_call(way):
    catalog = three_simulated()
    backend, name = Priced(catalog, dict.fromkeys(catalog, 0.4)), next(iter(catalog))
    guard, usages = SpendGuard(1.0), []
    call = CallContext(
        stage="s", prefix=(name,), clock=VirtualClock(), on_usage=usages.append, request=REQUESTS[0], guard=guard
    )
    model = backend.chat_model(catalog[name], call)

    async def streamed():
        return [piece async for piece in model.astream("?")]

    ways = {
        "invoke": lambda: model.invoke("?"),
        "ainvoke": lambda: asyncio.run(model.ainvoke("?")),
        "stream": lambda: list(model.stream("?")),
        "astream": lambda: asyncio.run(streamed()),
    }
    ways[way]()
    ways[way]()
    with pytest.raises(CallRefused, match=r"up to \$0\.400000, and \$0\.200000 is left of the request's \$1"):
        ways[way]()
    assert [one.cost_usd for one in usages] == [0.4, 0.4]


def test_a_recorded_call_is_guarded_too(tmp_path):
    table = tmp_path / "answers.csv"
    table.write_text("question_id,model,prediction,usd\nq0,a,42,0.6\n", encoding="utf-8")
    backend = RecordedBackend(table, cost_column="usd")
    entry = Model(name="a", provider="recorded", model_id="a", engine="e", price=PRICE)
    guard, request = SpendGuard(1.0), Request("q0", {})
    call = CallContext(
        stage="s", prefix=("a",), clock=VirtualClock(), on_usage=lambda usage: None, request=request, guard=guard
    )
    model = backend.chat_model(entry, call)
    assert model.invoke("?").text == "42"
    with pytest.raises(CallRefused):
        model.invoke("?")


def test_no_simulated_request_exceeds_its_cap_and_a_retry_takes_what_fits():
    """Planned at a hundredth of a cent; the dear models turn out to cost more than the cap."""
    catalog = three_simulated()
    cheap, *dear = catalog
    backend = Priced(catalog, {**dict.fromkeys(dear, 0.02), cheap: 0.002})
    vine = VineLM(catalog, {"simulated": backend}, trie=trie_of(catalog))
    objective = Objective(maximize="accuracy", max_cost_usd=0.005, cost_budget="per_request")
    retry = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False, retry_on=CallRefused)
    app = app_of(vine, retry)
    for request in REQUESTS:
        session = vine.session(objective, request=request)
        app.invoke({"question": "?"}, context=vine.context(objective, policy=session, request=request))
        assert session.spent_usd == pytest.approx(0.004)
        assert [one.prefix[-1] for one in session.invocations if one.failure is None] == [cheap, cheap]
        refused = [step.model for step in session.steps if step.kind == "refused"]
        assert set(refused) == set(dear)
        assert {one.failure for one in session.invocations} == {None, "budget"}


# -- through a graph, on a server -----------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(body["model"])
        data = json.dumps(COMPLETION).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *unused):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
    end_connections()


def catalog_on(server):
    def entry(name, dollars):
        price = Price(input=dollars, output=dollars, source="a test", as_of=datetime.date(2026, 1, 1))
        base = f"http://127.0.0.1:{server.server_port}/v1"
        return Model(name=name, provider="openai", model_id=name, engine="e", api_base=base, max_tokens=100, price=price)

    return Catalog([entry("cheap", 1.0), entry("dear", 50.0)], {"openai": {"stream": False, "max_retries": 0}})


def trie_of(catalog):
    """The dear model is the better one, and more invocations are better than fewer."""
    template = Template((Stage("solve"), Loop((Stage("fix"),), times=1))).bind(tuple(catalog))
    trie = Trie.from_template(template)
    success = np.where(trie.depth > 0, 0.2 + 0.1 * trie.depth + 0.3 * trie.model, 0.0)
    zeros, stops = np.zeros(len(trie)), np.where(trie.depth > 0, 0.1, 0.0)
    cost = np.where(trie.depth > 0, 0.0001, 0.0)
    return AnnotatedTrie(trie, template, catalog, success, stops, success * stops, cost, zeros, np.ones(len(trie)), zeros)


class State(TypedDict, total=False):
    question: str
    answer: str


def solve(state: State, model):
    return {"answer": model.invoke(state["question"]).text}


def app_of(vine, retry=None):
    graph = StateGraph(State)
    graph.add_node("solve", vine.stage("solve", solve), retry_policy=retry)
    graph.add_node("fix", vine.stage("fix", solve), retry_policy=retry)
    graph.add_edge(START, "solve")
    graph.add_conditional_edges("solve", vine.route(lambda state: False, again="fix", end=END))
    graph.add_edge("fix", END)
    return graph.compile()


def served(server, max_cost_usd, question="Six times seven?", **settings):
    catalog = catalog_on(server)
    vine = VineLM(catalog, trie=trie_of(catalog), **settings)
    objective = Objective(maximize="accuracy", max_cost_usd=max_cost_usd, cost_budget="per_request")
    session = vine.session(objective)
    return session, lambda: app_of(vine).invoke({"question": question}, context=vine.context(objective, policy=session))


def test_with_enough_for_it_the_dear_model_runs(server):
    session, invoke = served(server, 1.0)
    assert invoke()["answer"] == "42"
    assert server.asked == ["dear", "dear"]
    assert session.spent_usd == pytest.approx(2 * 505 * 50e-6)


def test_what_the_guard_would_refuse_is_not_planned(server):
    session, invoke = served(server, 0.004)  # the dear one sets 0.12 aside, the cheap one 0.0024
    assert invoke()["answer"] == "42"
    assert server.asked == ["cheap", "cheap"]
    assert session.spent_usd == pytest.approx(2 * 505 * 1e-6)


def test_an_answer_stays_where_no_further_call_may_start(server):
    session, invoke = served(server, 0.0026)  # enough for the first call's bound; then less is left than the second's
    assert invoke()["answer"] == "42"
    assert server.asked == ["cheap"]
    assert (session.steps[-1].kind, session.steps[-1].model) == ("end", None)


def test_no_call_starts_that_could_exceed_the_cap(server):
    session, invoke = served(server, 0.004, question="x" * 4000)
    with pytest.raises(CallRefused, match="raise max_cost_usd, or lower the model's max_tokens"):
        invoke()
    assert server.asked == []
    assert session.spent_usd == 0.0
    assert session.invocations[-1].failure == "budget"
    refused = session.trace()[-1]
    assert (refused["kind"], refused["stage"], refused["model"]) == ("refused", "solve", "cheap")
    assert "x" * 40 not in json.dumps(session.trace())


def test_observing_refuses_nothing(server):
    _, invoke = served(server, 0.0, question="x" * 4000, mode="observe")
    assert invoke()["answer"] == "42"
    assert server.asked == ["cheap", "cheap"]


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
def test_every_way_to_call_is_guarded(server, way):
    catalog = catalog_on(server)
    vine = VineLM(catalog, trie=trie_of(catalog))
    objective = Objective(maximize="accuracy", max_cost_usd=0.004, cost_budget="per_request")
    model = VineChatModel(vine=vine, stage="solve", objective=objective)

    async def streamed():
        return [piece async for piece in model.astream("x" * 4000)]

    ways = {
        "invoke": lambda: model.invoke("x" * 4000),
        "ainvoke": lambda: asyncio.run(model.ainvoke("x" * 4000)),
        "stream": lambda: list(model.stream("x" * 4000)),
        "astream": lambda: asyncio.run(streamed()),
    }
    with pytest.raises(CallError, match="call may cost up to"):
        ways[way]()
    assert server.asked == []


# -- every permit is settled, once -----------------------------------------------------------------------------------


def guarded_model(backend, entry):
    guard, usages = SpendGuard(1.0), []
    call = CallContext(
        stage="s", prefix=(entry.name,), clock=VirtualClock(), on_usage=usages.append, request=REQUESTS[0], guard=guard
    )
    return backend.chat_model(entry, call), guard, usages


def backends_of(server):
    """A simulated backend and a remote one, each with an entry of its catalog."""
    simulated, remote = three_simulated(), catalog_on(server)
    yield Priced(simulated, dict.fromkeys(simulated, 0.4)), simulated[next(iter(simulated))]
    yield create_backends(remote)["openai"], remote["cheap"]


def test_a_stream_that_is_abandoned_or_breaks_off_is_settled_once(server):
    """The simulated one is abandoned; the server answers with something that is no stream."""
    for backend, entry in backends_of(server):
        model, guard, usages = guarded_model(backend, entry)
        stream = model.stream("?")
        with suppress(CallError):
            next(stream)
        stream.close()
        assert (guard.calls, guard.reserved_usd, len(usages)) == (1, 0.0, 1)
        assert guard.settled_usd == usages[0].cost_usd


def test_a_call_whose_usage_nobody_can_take_is_settled_all_the_same(server):
    for backend, entry in backends_of(server):
        model, guard, _ = guarded_model(backend, entry)

        def lost(usage):
            raise OSError("lost")

        model.binding.call.on_usage = lost
        with pytest.raises(OSError, match="lost"):
            model.invoke("?")
        assert (guard.calls, guard.reserved_usd) == (1, 0.0)
