"""Served calls that a cache answers: for $0, once, within a tenant, and known to the planner. The server counts the calls."""

import asyncio
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TypedDict

import numpy as np
import pytest
from kit.catalogs import make_catalog
from langchain_core.caches import InMemoryCache
from langgraph.graph import END, START, StateGraph
from local_openai import local_openai

import vinelm
from vinelm.backends.remote.call_cache import FORGET, LEAST_ASKED
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.trie import Trie
from vinelm.trie.cache_hits import seconds_if_asked, with_hits

CATALOG = """[[model]]
name = "{name}"
provider = "openai"
model = "{name}"
api_base = "{url}"
max_tokens = 16
price = {{ input = {price}, output = {price}, source = "made up", as_of = 2026-01-01 }}
options = {{ temperature = {temperature} }}
"""
CALL_USD = 22 * 100.0 / 1e6


class State(TypedDict, total=False):
    document: str
    summary: str


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    record = tmp_path_factory.mktemp("calls") / "calls.jsonl"
    with local_openai(0.05, record=str(record)) as url:
        yield url, record


@pytest.fixture
def world(server, tmp_path, monkeypatch):
    """What makes an application over these models, and what counts the server's calls since the test began, by prompt."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    url, record = server
    before = len(record.read_text().splitlines()) if record.exists() else 0

    def counts():
        lines = map(json.loads, record.read_text().splitlines()[before:])
        return Counter(line["prompt"] for line in lines if line["what"] == "began")

    def served(temperature=0.0, trie=None, **settings):
        path = tmp_path / "models.toml"
        path.write_text(
            "".join(
                CATALOG.format(name=name, url=url, price=price, temperature=temperature)
                for name, price in (("small", 100.0), ("large", 200.0))
            )
        )
        made = {} if trie is None else {"trie": trie(Catalog.of(path)), "allow_unproven": True}
        vine = vinelm.VineLM(path, **made)

        def summarize(state: State, model):
            return {"summary": model.invoke(f"{settings.get('text', 'Summarize')}: {state['document']}").text}

        told = {key: one for key, one in settings.items() if key != "text"}
        graph = StateGraph(State)
        graph.add_node("summarize", vine.stage("summarize", summarize, default="small", **told))
        graph.add_edge(START, "summarize")
        graph.add_edge("summarize", END)
        return vine, graph.compile()

    return served, counts


class Spent:
    """An observer that keeps the invocations."""

    def __init__(self, vine):
        self.seen = []
        vine.observe(self)

    def decided(self, decided): ...

    def began(self, stage, prefix, model): ...

    def ended(self, token, invocation):
        self.seen.append(invocation)


def test_an_equal_call_costs_nothing_and_is_told_as_a_hit(world):
    served, counts = world
    cache = vinelm.CallCache()
    vine, app = served(cache=cache)
    spent = Spent(vine)
    first, again, other = (app.invoke({"document": name})["summary"] for name in ("a", "a", "b"))
    assert first == again == asyncio.run(app.ainvoke({"document": "a"}))["summary"]
    assert other
    assert counts() == {"Summarize: a": 1, "Summarize: b": 1}
    assert [one.cost_usd for one in spent.seen] == pytest.approx([CALL_USD, 0.0, CALL_USD, 0.0])
    (hit,) = spent.seen[1].usages
    assert hit.is_equal
    assert hit.list_usd == pytest.approx(CALL_USD), "what it would have cost"
    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(lambda _: app.invoke({"document": "c"})["summary"], range(6)))) == 1
    assert counts()["Summarize: c"] == 1, "those under way are joined"


def test_langchains_cache_is_shared_by_services_but_not_by_tenants(world):
    served, counts = world
    place = InMemoryCache()
    for _ in range(2):
        app = served(cache=place, text="Tenants")[1]
        for tenant in ("acme", "bolt", 'bolt", "x'):
            app.invoke({"document": "a"}, {"configurable": {"tenant": tenant}})
    assert counts() == {"Tenants: a": 3}
    app = served(cache=vinelm.CallCache(place, across_tenants=True), text="Tenants")[1]
    for tenant in ("acme", "bolt"):
        app.invoke({"document": "a"}, {"configurable": {"tenant": tenant}})
    assert counts() == {"Tenants: a": 4}
    kept = repr(place._cache)
    assert "sk-none" not in kept
    assert "acme" not in kept


def test_what_may_have_several_answers_and_what_is_old_is_asked_again(world):
    served, counts = world
    warm = served(temperature=0.7, cache=InMemoryCache(), text="Warm")[1]
    said = served(temperature=0.7, cache=InMemoryCache(), deterministic=True, text="Said")[1]
    old = served(cache=vinelm.CallCache(age_s=1e-9), text="Old")[1]
    for app in (warm, said, old) * 2:
        app.invoke({"document": "a"})
    assert counts() == {"Warm: a": 2, "Said: a": 1, "Old: a": 2}


class Broken(InMemoryCache):
    def lookup(self, prompt, llm_string):
        raise OSError("redis://secret@host is gone")


def test_a_cache_that_fails_costs_no_request(world, caplog):
    served, counts = world
    app = served(cache=Broken(), text="Broken")[1]
    for _ in range(2):
        assert app.invoke({"document": "a"})["summary"]
    assert counts() == {"Broken: a": 2}
    assert "the cache of calls failed (OSError)" in caplog.text
    assert "secret" not in caplog.text


def test_what_is_no_cache_is_one_line(world):
    for wrong in ({"cache": True}, {"cache": {}}):
        with pytest.raises(ConfigError, match="give one of LangChain's"):
            world[0](**wrong)
    with pytest.raises(ConfigError, match="give seconds above 0"):
        vinelm.CallCache(age_s=0)


def annotated(catalog):
    """The large model is right more often, for twice the dollars."""
    template = vinelm.Template((vinelm.Stage("summarize"),)).bind(tuple(catalog))
    nodes = Trie.from_template(template)
    right, zeros = np.array([0.0, 0.7, 0.9]), np.zeros(3)
    ends = np.array([0.0, 1.0, 1.0])
    usd = np.array([0.0, CALL_USD, 2 * CALL_USD])
    return vinelm.AnnotatedTrie(nodes, template, catalog, right, ends, right, usd, zeros, ends, zeros)


def test_plans_know_what_the_cache_answers(world):
    cache = vinelm.CallCache()
    vine, app = world[0](cache=cache, trie=annotated, text="Planned")
    within = vinelm.Objective(maximize="accuracy", max_cost_usd=1.5 * CALL_USD, mix=False)
    spent = Spent(vine)
    app.invoke({"document": "a"}, context=vine.context(within))
    assert spent.seen[-1].prefix == ("small",)
    cache.count(("summarize", "large"), asked=FORGET // 2, hits=FORGET // 4)  # what other processes, say, have seen
    app.invoke({"document": "a"}, context=vine.context(within))
    assert spent.seen[-1].prefix == ("large",), "half of its calls are free"
    assert vine.served_planner().plan(within).path_cost_usd == pytest.approx(CALL_USD)


def test_hits_are_part_of_means_and_variances():
    catalog = make_catalog(2)
    trie, (small, _) = annotated(catalog), tuple(catalog)
    found = with_hits(trie, {("summarize", small): 0.25})
    assert found.cost_usd[1:] == pytest.approx([0.75 * CALL_USD, 2 * CALL_USD])
    draws = np.array([0.0, CALL_USD, CALL_USD, CALL_USD])
    assert found.cost_var[1] == pytest.approx(draws.var())
    assert found.latency_s[1] == pytest.approx(0.75)
    assert seconds_if_asked(found, 1) == pytest.approx(trie.latency_s[1]), "load is beyond what a call takes"
    assert with_hits(trie, {}) is trie


def test_rates_are_known_after_enough_calls_and_follow_what_changes():
    cache = vinelm.CallCache()
    cache.count(("a", "m"), asked=LEAST_ASKED - 1, hits=10)
    assert not cache.rates
    for _ in range(4 * FORGET):
        cache.count(("a", "m"), asked=1, hits=1)
    assert cache.rates["a", "m"] > 0.95


def test_a_full_cache_in_memory_drops_the_oldest_whatever_the_number_of_threads():
    place = InMemoryCache(maxsize=8)
    cache = vinelm.CallCache(place)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: cache.keep(f"d{n}", "said"), range(2_000)))
    assert len(place._cache) == 8
    cache.keep("last", "said")
    assert cache.find("last") == "said", "it has not failed meanwhile"
