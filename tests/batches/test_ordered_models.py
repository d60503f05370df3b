"""Calls that wait for an engine's limits: in the order of the batch, and none is lost or kept."""

import json
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
from batch_parts.throughput import ENTRY, OBJECTIVE, State
from langchain_core.messages import HumanMessage
from langgraph.graph import END, START, StateGraph
from local_openai import local_openai

import vinelm
from vinelm.backends.limits.rate_limits import EngineRateLimiter, RateLimits
from vinelm.batches.ordered_models import OrderedModels
from vinelm.catalog import Catalog
from vinelm.clock import WallClock
from vinelm.requests.protocols import CallContext
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Usage
from vinelm.trie import Trie

CATALOG = ENTRY.format(name="small", url="http://127.0.0.1:1", price=1.0)


@dataclass
class FakeBackend:
    """Has limits, and hands the context of a call out in place of a model."""

    concurrency: int | None
    names_slots: bool = False
    is_simulated = is_virtual_time = False
    rate_limiters: dict = field(init=False)

    def __post_init__(self):
        self.rate_limiters = {
            "local": EngineRateLimiter(RateLimits(concurrency=self.concurrency, names_slots=self.names_slots))
        }

    def chat_model(self, model, call):
        return call


@pytest.fixture
def made(tmp_path):
    def of(requests, concurrency=1, workers=1, **limits):
        (tmp_path / "models.toml").write_text(CATALOG)
        backend = FakeBackend(concurrency, **limits)
        return OrderedModels(Catalog.of(tmp_path / "models.toml"), {"openai": backend}, requests, workers), backend

    return of


def context(request, depth=0, told=None):
    usages = [] if told is None else told
    request = None if request is None else Request(id=request, data={})
    prefix = ("small",) * (depth + 1)
    return CallContext(stage="a", prefix=prefix, clock=WallClock(), on_usage=usages.append, request=request, priority=7.0)


def test_calls_in_line_go_by_request_whenever_they_came(made):
    models, backend = made(["a", "b", "c", "d"])
    limiter, went, threads = backend.rate_limiters["local"], [], []

    def attempt(call, name):
        with limiter.admit(1, lambda seconds: None, call.priority):
            call.on_gate(False)
            went.append(name)
        call.on_usage(Usage(model="small", cost_usd=0.0, latency_s=0.1))

    with limiter.admit(1, lambda seconds: None, 0.0):
        for name, depth in (("c", 0), ("a", 1), ("b", 0), ("a", 0)):
            call = models.chat_model("small", context(name, depth))
            call.on_prompt([HumanMessage(f"the prompt of {name}")], ())
            threads.append(threading.Thread(target=attempt, args=(call, name + str(depth))))
            threads[-1].start()
            while len(limiter._queue) < len(threads):
                pass
    for thread in threads:
        thread.join()
    assert went == ["a0", "a1", "b0", "c0"]
    assert not models._line


def test_a_call_that_fails_before_it_is_sent_leaves_the_line(made):
    models, _ = made(["a", "b"])
    told = []
    call = models.chat_model("small", context("a", told=told))
    call.on_prompt([HumanMessage("a")], ())
    assert len(models._line) == 1
    usage = Usage(model="small", cost_usd=0.0, latency_s=0.0, failure="rate_limited")
    call.on_usage(usage)
    assert told == [usage]
    assert not models._line


def test_a_call_that_was_refused_leaves_the_line_with_its_request(made):
    models, _ = made(["a", "b"])
    for name in "ab":
        models.chat_model("small", context(name)).on_prompt([HumanMessage(name)], ())
    models.ended("a")
    assert [waiting.position for *_, waiting in models._line] == [1]


def test_attempts_and_calls_of_one_invocation_are_counted_once_each(made):
    models, _ = made(["a", "b"])
    call = models.chat_model("small", context("a"))
    for _ in range(2):  # an agent calls again
        call.on_prompt([HumanMessage("word " * 2000)], ())
        call.on_gate(True)
        call.on_gate(False)
        call.on_gate(False)  # a retry
        call.on_usage(Usage(model="small", cost_usd=0.0, latency_s=0.1, tokens_cached=100))
    sums = models._calls._under_way[0].sums
    assert sums.total > 4000
    assert 0 < sums.own < sums.total
    assert sums.cached == 100, "the first prompt promised nothing"


def test_calls_without_limits_and_of_nobody_are_left_alone(made):
    models, _ = made(["a"], concurrency=None)
    mine = context("a")
    assert models.chat_model("small", mine) is mine
    models, _ = made(["a"])
    stranger = context("z")
    assert models.chat_model("small", stranger) is stranger
    assert models.chat_model("small", context(None)).priority == 7.0
    models.ended("z")


def asks(number):
    def answer(state, model):
        return {"answer": model.invoke(f"{state['question']} {number}").text}

    return answer


def build(vine):
    graph = StateGraph(State)
    graph.add_node("draft", vine.stage("draft", asks(1), state=State))
    graph.add_node("final", vine.stage("final", asks(2), state=State))
    graph.add_edge(START, "draft")
    graph.add_edge("draft", "final")
    graph.add_edge("final", END)
    return graph


def test_a_batch_finishes_requests_where_the_engine_takes_one_call_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    requests = [Request(id=f"r{number}", data={"question": f"question {number}"}) for number in range(12)]
    workflow = vinelm.Workflow(name="two", build=build, requests=requests, score=lambda request, state: True)
    record = tmp_path / "record.jsonl"
    with local_openai(0.1, record=str(record)) as url:
        text = ENTRY.format(name="small", url=url, price=1.0)
        (tmp_path / "models.toml").write_text(text + "[backend.openai]\nlimits = { local = { concurrency = 1 } }\n")
        catalog = Catalog.of(tmp_path / "models.toml")
        template = vinelm.Template((vinelm.Stage("draft"), vinelm.Stage("final"))).bind(("small",))
        trie = _trie(template, catalog)
        found = vinelm.batch(workflow, trie, OBJECTIVE, output=tmp_path / "a.jsonl", budget_usd=10.0, workers=8)
    assert found.by_status["ok"] == 12
    calls = [one["prompt"] for one in map(json.loads, record.read_text().splitlines()) if one["what"] == "began"]
    assert len(calls) == 24
    stages = [prompt[-1] for prompt in calls]
    assert stages.index("2") < 6, "in the order of their arrival, eight first calls would come before"


def _trie(template, catalog):
    nodes = Trie.from_template(template)
    zeros, ends = np.zeros(len(nodes)), (nodes.depth > 0) * 1.0
    return vinelm.AnnotatedTrie(nodes, template, catalog, ends / 2, ends, ends / 2, ends * 1e-4, zeros, ends * 0.1, zeros)


def test_a_call_knows_its_slot_once_it_has_its_place_and_only_where_the_engine_takes_it(made):
    models, _ = made(["a", "b"], concurrency=2, workers=2, names_slots=True)
    calls = [models.chat_model("small", context(name)) for name in ("a", "b")]
    assert [call.slot() for call in calls] == [None, None]
    for name, call in zip(("a", "b"), calls, strict=True):
        call.on_prompt([HumanMessage(f"the prompt of {name}")], ())
        call.priority.granted()
        call.on_gate(False)
    assert sorted(call.slot() for call in calls) == [0, 1]
    other, _ = made(["a", "b"], concurrency=2, workers=2)
    assert other.chat_model("small", context("a")).slot is None


def test_slots_that_are_free_at_once_get_calls_that_begin_differently(made):
    models, backend = made(["a1", "a2", "b1", "b2", "x", "y"], concurrency=2, workers=16)
    limiter = backend.rate_limiters["local"]
    calls = {name: models.chat_model("small", context(name)) for name in ("a1", "a2", "b1", "b2", "x", "y")}

    def asks(name):
        calls[name].on_prompt([HumanMessage(name[0] * 4000), HumanMessage(f"question {name}")], ())
        return limiter._take(calls[name].priority)

    def ends(name, slot):
        calls[name].on_over(0.0)
        limiter._give(slot)
        calls[name].on_usage(Usage(model="small", cost_usd=0.0, latency_s=0.1))
        models.ended(name)

    def going():
        return {name for name, slot in slots.items() if slot.done()}

    slots = {name: asks(name) for name in ("x", "y")}
    slots |= {name: asks(name) for name in ("a1", "a2", "b1", "b2")}
    for name in ("x", "y"):
        ends(name, slots.pop(name))
    assert going() == {"a1", "b1"}, "each table has one slot, whichever woke up first"
    ends("b1", slots.pop("b1"))
    assert going() == {"a1", "b2"}
    ends("b2", slots.pop("b2"))
    assert going() == {"a1"}, "a slot stays free for what it does not hold"
    ends("a1", slots.pop("a1"))
    assert going() == {"a2"}
