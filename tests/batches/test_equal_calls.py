"""Equal calls of a batch are bought once: counted by the server, stated in dollars, under caps and after kills."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import numpy as np
import pytest
from langgraph.graph import END, START, StateGraph
from local_openai import local_openai

import vinelm
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError, StoreError
from vinelm.profiler import ExecutionConfig
from vinelm.rows.observation import at_ordinary_prices
from vinelm.traces import ObservationStore
from vinelm.trie import Trie

CATALOG = """[[model]]
name = "small"
provider = "openai"
model = "small"
api_base = "{url}"
max_tokens = 16
price = {{ input = 100.0, output = 100.0, source = "made up", as_of = 2026-01-01 }}
options = {{ temperature = {temperature} }}
"""
SIMULATED = (
    CATALOG.replace('"openai"', '"simulated"')
    .replace('model = "small"', 'model = "glm"')
    .replace('api_base = "{url}"\n', "")
    .partition("options")[0]
    .format()
)
CHEAPEST = vinelm.Objective(minimize="cost")
CALL_USD = 22 * 100.0 / 1e6
DOCUMENTS, QUESTIONS = 4, 3
DIFFERENT = DOCUMENTS + DOCUMENTS * QUESTIONS


class State(TypedDict, total=False):
    document: str
    question: str
    summary: str
    answer: str


def summarize(state: State, model) -> State:
    return {"summary": model.invoke(f"Summarize: {state['document']}").text}


def reply(state: State, model) -> State:
    return {"answer": model.invoke(f"{state['document']}, in short {state['summary']}. {state['question']}").text}


def build(vine, *, deterministic=False):
    graph = StateGraph(State)
    graph.add_node("summarize", vine.stage("summarize", summarize, deterministic=deterministic))
    graph.add_node("reply", vine.stage("reply", reply))
    graph.add_edge(START, "summarize")
    graph.add_edge("summarize", "reply")
    graph.add_edge("reply", END)
    return graph


def rows(documents=range(DOCUMENTS)):
    return [
        vinelm.Request(id=f"{d}-{q}", data={"document": f"document {d}", "question": f"question {q}"})
        for d in documents
        for q in range(QUESTIONS)
    ]


workflow = vinelm.Workflow(name="equal", build=build, requests=rows(), score=lambda request, state: True)


def trie(catalog):
    stages = (vinelm.Stage("summarize", answerable=False), vinelm.Stage("reply"))
    template = vinelm.Template(stages).bind(tuple(catalog))
    nodes = Trie.from_template(template)
    ends, zeros = (nodes.depth > 1) * 1.0, np.zeros(len(nodes))
    runs = (nodes.depth > 0) * 1.0
    return vinelm.AnnotatedTrie(nodes, template, catalog, ends, ends, ends, runs * CALL_USD, zeros, runs * 0.1, zeros)


@contextmanager
def world(folder, temperature=0, latency_s=0.02):
    """A server that records its calls, the catalog, and what counts the calls by prompt."""
    record = folder / "calls.jsonl"
    with local_openai(latency_s, record=str(record)) as url:
        catalog = Catalog.of(_written(folder / "models.toml", CATALOG.format(url=url, temperature=temperature)))

        def counts():
            lines = map(json.loads, record.read_text().splitlines()) if record.exists() else []
            return Counter(line["prompt"] for line in lines if line["what"] == "began")

        yield catalog, counts


def _written(path, text):
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")


def run(folder, catalog, name="a", work=workflow, **settings):
    settings = {"budget_usd": 5.0, "workers": 6} | settings
    return vinelm.batch(work, trie(catalog), CHEAPEST, output=folder / f"{name}.jsonl", models=catalog, **settings)


def test_each_different_call_is_made_once_and_dollars_say_so(tmp_path):
    with world(tmp_path) as (catalog, counts):
        found = run(tmp_path, catalog)
        made = counts()
    assert len(made) == sum(made.values()) == DIFFERENT
    assert found.equal_calls == DOCUMENTS * QUESTIONS * 2 - DIFFERENT
    assert found.spent_usd == pytest.approx(DIFFERENT * CALL_USD)
    assert found.saved_usd == pytest.approx(found.equal_calls * CALL_USD)
    assert sum(line["cost_usd"] for line in found.lines()) == pytest.approx(found.spent_usd)
    assert {line["status"] for line in found.lines()} == {"ok"}


def test_a_later_batch_finds_what_an_earlier_one_bought(tmp_path):
    with world(tmp_path) as (catalog, counts):
        run(tmp_path, catalog, cache=tmp_path / "calls.db")
        before = sum(counts().values())
        again = run(tmp_path, catalog, "b", cache=tmp_path / "calls.db")
        assert sum(counts().values()) == before
        assert (again.spent_usd, again.equal_calls) == (0.0, DOCUMENTS * QUESTIONS * 2)
        more = replace(workflow, requests=rows(range(1, DOCUMENTS + 1)))
        third = run(tmp_path, catalog, "c", more, cache=tmp_path / "a.db")
        assert sum(counts().values()) == before + DIFFERENT, "that store has answers to requests, but none to calls"
        fourth = run(tmp_path, catalog, "d", more, cache=tmp_path / "calls.db")
        assert fourth.spent_usd == pytest.approx((1 + QUESTIONS) * CALL_USD), "of one document that is new"
        assert third.spent_usd == pytest.approx(DIFFERENT * CALL_USD)


def test_old_answers_are_bought_again(tmp_path):
    with world(tmp_path) as (catalog, counts):
        run(tmp_path, catalog, cache=tmp_path / "calls.db")
        time.sleep(0.01)
        found = run(tmp_path, catalog, "b", cache=tmp_path / "calls.db", cache_age_s=0.0, workers=1)
        assert found.spent_usd == pytest.approx(DOCUMENTS * QUESTIONS * 2 * CALL_USD)
        assert sum(counts().values()) == DIFFERENT + DOCUMENTS * QUESTIONS * 2


def test_at_another_temperature_only_a_stage_that_says_so_shares(tmp_path):
    with world(tmp_path, temperature=0.7) as (catalog, counts):
        assert run(tmp_path, catalog).equal_calls == 0
        assert sum(counts().values()) == DOCUMENTS * QUESTIONS * 2
        says = replace(workflow, build=lambda vine: build(vine, deterministic=True))
        found = run(tmp_path, catalog, "b", says)
        assert found.equal_calls == DOCUMENTS * (QUESTIONS - 1)


def test_a_known_answer_needs_no_money_and_a_cap_holds_for_the_others(tmp_path):
    less = {"budget_usd": 0.2, "finish": "good"}  # less than the bound of one call
    with world(tmp_path) as (catalog, counts):
        run(tmp_path, catalog, cache=tmp_path / "calls.db")
        before = sum(counts().values())
        found = run(tmp_path, catalog, "b", cache=tmp_path / "calls.db", **less)
        assert found.is_complete
        refused = run(tmp_path, catalog, "c", **less)
        assert refused.by_status["unanswered"] == DOCUMENTS * QUESTIONS
        one_at_a_time = run(tmp_path, catalog, "d", budget_usd=0.26, finish="good")
        assert one_at_a_time.spent_usd <= 0.26
        assert sum(counts().values()) - before <= DIFFERENT


def test_a_leader_that_fails_leaves_its_answer_to_the_next(tmp_path):
    with world(tmp_path) as (catalog, counts):
        failed = []

        def asked(state: State, model) -> State:
            text = ""
            for piece in model.stream(f"Summarize: {state['document']}"):
                if not failed:  # others wait for this call
                    failed.append(1)
                    raise ValueError("left")
                text += piece.text
            return {"summary": text}

        def graph(vine):
            made = StateGraph(State)
            made.add_node("summarize", vine.stage("summarize", asked))
            made.add_node("reply", vine.stage("reply", reply))
            made.add_edge(START, "summarize")
            made.add_edge("summarize", "reply")
            made.add_edge("reply", END)
            return made

        found = run(tmp_path, catalog, work=replace(workflow, build=graph))
        assert found.by_status["failed"] == 1
        assert found.by_status["ok"] == DOCUMENTS * QUESTIONS - 1
        summaries = [number for prompt, number in counts().items() if prompt.startswith("Summarize")]
        assert sorted(summaries) == [1] * (DOCUMENTS - 1) + [2]


def test_simulated_models_clusters_and_batches_of_providers_have_no_cache(tmp_path):
    simulated = Catalog.of(_written(tmp_path / "s.toml", SIMULATED))
    with pytest.raises(ConfigError, match="simulated models answer by the request"):
        run(tmp_path, simulated, work=replace(workflow, writer=vinelm.TextWriter("document")), cache=tmp_path / "calls.db")
    with world(tmp_path) as (catalog, _):
        with pytest.raises(ConfigError, match="calls in providers' batches have no common cache"):
            run(tmp_path, catalog, cache=tmp_path / "calls.db", batch_prices=True)
        with pytest.raises(ConfigError, match="the age of answers is -1"):
            run(tmp_path, catalog, cache_age_s=-1)
        run(tmp_path, catalog, cache=tmp_path / "calls.db")
        with pytest.raises(StoreError, match="not-there"):
            run(tmp_path, catalog, "b", cache=tmp_path / "not-there" / "calls.db")


FORKS = """
import os, sys
here, folder, *paths = sys.argv[1:]
sys.path[:0] = [here, *paths]
from pathlib import Path
import test_equal_calls
from vinelm.backends import create_backends
from vinelm.catalog import Catalog
for backend in create_backends(Catalog.of(folder + "/models.toml")).values():
    backend.preload()  # the forks need not
for _ in sys.stdin:
    pid = os.fork()
    if not pid:
        test_equal_calls.run(Path(folder), Catalog.of(folder + "/models.toml"), workers=4)
        os._exit(0)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


@pytest.mark.usefixtures("warm_python")
def test_kill_9_buys_nothing_again_but_what_was_under_way(tmp_path):
    with world(tmp_path, latency_s=0.15) as (catalog, counts):
        line = [sys.executable, "-c", FORKS, str(Path(__file__).parent), str(tmp_path), *sys.path]
        rounds = 0
        with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as forks:
            for calls in (3, 7, 11):
                forks.stdin.write("one more\n")
                forks.stdin.flush()
                child, until_s = int(forks.stdout.readline()), time.monotonic() + 120
                while sum(counts().values()) < calls and time.monotonic() < until_s:
                    time.sleep(0.01)
                os.kill(child, signal.SIGKILL)
                assert int(forks.stdout.readline()) == signal.SIGKILL
                rounds += 1
        before = sum(counts().values())
        found = run(tmp_path, catalog, workers=4)
        assert found.is_complete
        made = counts()
        assert sum(made.values()) <= DIFFERENT + 4 * rounds
        assert before < DIFFERENT + 4 * rounds
        assert len(made) == DIFFERENT
        # What was killed counts at its bound, once; nothing is free that was bought, and nothing is booked that was found.
        assert found.spent_usd >= DIFFERENT * CALL_USD - 1e-9
        listed = DOCUMENTS * QUESTIONS * 2 * CALL_USD
        paid = sum(line["cost_usd"] for line in found.lines())
        assert paid + found.saved_usd == pytest.approx(listed)


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_profile_buys_them_once_and_takes_no_model_for_free(tmp_path, isolation, monkeypatch):
    """Also where units that want the same call run side by side, in threads or in processes."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    execution = ExecutionConfig(isolation=isolation, workers=4)
    settings = {"sampler": "exhaustive", "coverage": 1.0, "budget_usd": 5.0, "execution": execution}
    with world(tmp_path, latency_s=0.1) as (_, counts):
        found = vinelm.profile("test_equal_calls:workflow", tmp_path / "models.toml", tmp_path / "a.db", **settings)
    assert max(counts().values()) == 1
    assert counts().total() == DIFFERENT
    assert (found.committed_usd, found.spent_usd) == pytest.approx((DIFFERENT * CALL_USD,) * 2)
    assert found.exhaustive_usd == pytest.approx(2 * DOCUMENTS * QUESTIONS * CALL_USD)
    with ObservationStore.open(tmp_path / "a.db") as store:
        rows = store.observations()
    assert [row.cost_usd for row in at_ordinary_prices(rows)] == pytest.approx([CALL_USD] * len(rows))
    assert sum(row.cost_usd == 0.0 for row in rows) == DOCUMENTS * (QUESTIONS - 1)
    assert all(row.latency_s >= 0.1 for row in rows)


def test_a_profile_at_another_temperature_asks_each_call(tmp_path):
    with world(tmp_path, temperature=0.7) as (catalog, counts):
        vinelm.profile(workflow, catalog, tmp_path / "a.db", sampler="exhaustive", coverage=1.0, budget_usd=5.0)
    assert counts().total() == 2 * DOCUMENTS * QUESTIONS
