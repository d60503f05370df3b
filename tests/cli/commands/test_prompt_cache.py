"""A prompt cache from the call to the plan: measured, kept, exported, estimated by edge, planned with, worth it when served."""

import json
import sys
from functools import partial

import numpy as np
import pytest

from vinelm import Objective, VineLM
from vinelm.backends import create_backends
from vinelm.catalog import Catalog
from vinelm.cli.main import main
from vinelm.vinefile import load_trie
from vinelm.workflows import load_workflow

TURNS = 3
SPEC = "long_reader:workflow"
APP = f"""
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from vinelm import Loop, Stage, Template, TextWriter, Workflow
from vinelm.requests.workflow import Request

DOCUMENT = "All work and no play. " * 2000  # what a request carries dwarfs what is answered


class State(TypedDict, total=False):
    question: str
    answer: str
    tries: int


def ask(state: State, model):
    answer = model.invoke(DOCUMENT + state["question"]).text.strip()
    return {{"answer": answer, "tries": state.get("tries", 0) + 1}}


def build(vine):
    graph = StateGraph(State)
    graph.add_node("ask", vine.stage("ask", ask))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", vine.route(lambda state: state["tries"] >= {TURNS}, again="ask", end=END))
    return graph


workflow = Workflow(
    name="long-reader",
    template=Template((Loop((Stage("ask"),), times={TURNS}),), stop="oracle"),
    build=build,
    requests=[Request(f"q{{n:03d}}", {{"question": f"What is {{n}} times {{n}}?", "answer": str(n * n)}}) for n in range(300)],
    labels=("answer",),
    score=lambda request, state: state.get("answer") == request.data["answer"],
    writer=TextWriter("answer"),
)
"""
ENTRY = """
[[model]]
name = "{name}"
provider = "simulated"
model = "{model}"
engine = "gpu"
price = {{ input = {input}, output = 2.0, cached = {cached}, source = "simulated", as_of = 2026-11-20 }}
{options}
"""
FLOOR = Objective(minimize="cost", min_accuracy=0.72)
"""The dearer model alone does not reach it. Asked again it does, and so does a switch to the cheaper one, a little sooner."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """{with cache?: (store, trie, catalog file)}, profiled at 15 % coverage; both models share an engine, not a cache."""
    folder = tmp_path_factory.mktemp("caches")
    (folder / "long_reader.py").write_text(APP)
    sys.path.insert(0, str(folder))
    found = {}
    for has_cache in (True, False):
        catalog, store, trie = (folder / f"{has_cache}.{ending}" for ending in ("toml", "db", "vine"))
        options = "options = { cached_share = 0.95 }" if has_cache else ""
        models = (("a", "gemma-27b", 0.9), ("b", "llama-70b", 1.0))
        catalog.write_text(
            "".join(ENTRY.format(name=n, model=m, input=p, cached=p / 10, options=options) for n, m, p in models)
        )
        profile = [
            "profile",
            SPEC,
            "--models",
            str(catalog),
            "--store",
            str(store),
            "--coverage",
            "0.15",
            "--quiet",
            "--sampler",
            "cascade",
        ]
        assert main([*profile, "--isolation", "inline"]) == 0  # a process per unit takes four times as long
        assert main(["estimate", str(store), "-o", str(trie), "--no-check", "--quiet"]) == 0
        found[has_cache] = (store, trie, catalog)
    yield found
    sys.path.remove(str(folder))


def from_json(capsys, *args: object):
    capsys.readouterr()
    assert main([*map(str, args), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def is_kept(prefix):
    return len(prefix) > 1 and prefix[-1] == prefix[-2]


def test_the_annotations_carry_it_also_where_nothing_was_observed(made):
    """Exact from the prices: a kept prefix bills 5 % of the prompt in full and 95 % at a tenth."""
    annotated = load_trie(made[True][1])
    trie = annotated.trie
    later = [node for node in range(1, len(trie)) if trie.depth[node] > 1]
    first = {name: annotated.cost_usd[trie.node((name,))] for name in trie.models}
    share = {node: annotated.cost_usd[node] / first[trie.prefix(node)[-1]] for node in later}
    assert annotated.count is not None
    assert any(annotated.count[node] == 0 for node in later)
    for node in later:
        exact = 0.05 + 0.95 * 0.1 if is_kept(trie.prefix(node)) else 1.0
        assert share[node] == pytest.approx(exact, abs=0.15), trie.prefix(node)
    control = load_trie(made[False][1])
    assert all(
        control.cost_usd[node] == pytest.approx(control.cost_usd[trie.node(trie.prefix(node)[-1:])], rel=0.02) for node in later
    )


def test_the_trie_and_the_store_show_it(made, capsys):
    store, trie, _ = made[True]
    shown = from_json(capsys, "trie", "show", trie)
    for row in shown["follow_ups"]:
        assert row["kept_cost_usd"] < 0.35 * row["switched_cost_usd"]
        assert row["kept_latency_s"] < 0.6 * row["switched_latency_s"]
        assert shown["meta"]["cached_share"][row["model"]] == pytest.approx(
            {"first": 0, "switched": 0, "kept": 0.95}, abs=0.001
        )
    assert main(["trie", "show", str(trie)]) == 0
    assert "Savings from keeping a model" in capsys.readouterr().out
    assert main(["store", "info", str(store)]) == 0
    assert "95.0 % after itself" in capsys.readouterr().out
    assert main(["trie", "show", str(made[False][1])]) == 0
    assert "What keeping" not in capsys.readouterr().out


def test_the_plan_keeps_the_model_with_a_cache_and_switches_without(made, capsys):
    goal = ("--minimize", "cost", "--min-accuracy", FLOOR.min_accuracy)
    kept, switched = (from_json(capsys, "plan", made[has_cache][1], *goal)["plans"][0] for has_cache in (True, False))
    kept, switched = ([one["plan"] for one in found.get("mixed_plans", [found])] for found in (kept, switched))
    assert max(map(len, kept)) > 1
    assert all(len(set(plan)) == 1 for plan in kept)
    assert any(len(set(plan)) == 2 for plan in switched)


def test_it_pays_when_served(made):
    """Both plans on the models with the cache: the one that knows of it is cheaper, and as accurate as was asked."""
    workflow = load_workflow(SPEC)
    spent = {}
    for has_cache in (True, False):
        catalog = Catalog.from_file(made[True][2])
        backends = create_backends(catalog, workflow=workflow)
        vine = VineLM(catalog, backends, template=workflow.template, trie=made[has_cache][1], labelled=True)
        app = workflow.build(vine).compile()
        sessions = []
        for request in workflow.requests[:120]:
            sessions.append(vine.session(FLOOR, request=request, judge=partial(workflow.score, request)))
            app.invoke(workflow.graph_input(request), context=vine.context(FLOOR, policy=sessions[-1], request=request))
        spent[has_cache] = np.mean([session.spent_usd for session in sessions])
    assert spent[True] < spent[False]
