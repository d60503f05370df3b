"""The example without a graph: what routing took, that it runs as before, and that it is learned and served offline."""

import difflib
import inspect
import random
from pathlib import Path

import pytest
from examples_before import plain as orders_before
from langchain_core.language_models import FakeListChatModel

from examples.example_cli import SIMULATED, Defaults, run
from examples.plain import app
from examples.plain.app import workflow
from vinelm import VineLM
from vinelm.adapters.langgraph import build_graph
from vinelm.backends import create_backends
from vinelm.backends.offline.presets import simulated_catalog
from vinelm.profiler.execution.replayed.runner import make_units

FOLDER = Path(inspect.getfile(app)).parent


def test_routing_took_two_lines_and_the_docs_show_them():
    old, new = (Path(file).read_text().splitlines() for file in (orders_before.__file__, FOLDER / "orders.py"))
    changed = [line for line in difflib.ndiff(old, new) if line[0] in "+-"]
    assert sum(line[0] == "+" for line in changed) == 2
    docs = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()
    for line in changed:
        assert f"{line[0]}{line[2:]}\n" in docs, line


def test_it_ran_before_vinelm():
    [request, *_] = workflow.requests
    right = workflow.writer.right(request, random.Random(0))
    model = FakeListChatModel(responses=["no JSON", right])
    state = orders_before.build(model, model)({"letter": request.data["letter"]})
    assert workflow.score(request, state)


@pytest.mark.parametrize(
    ("kind", "problem"), [("syntax_error", "not JSON"), ("wrong_aggregate", "sum up"), ("wrong_column", None)]
)
def test_wrong_answers_are_wrong_and_two_kinds_are_noticed(kind, problem):
    for request in workflow.requests:
        answer = workflow.writer.wrong(request, kind, random.Random(0))
        assert not workflow.score(request, {"answer": answer})
        found = orders_before.fault(answer)
        assert (problem in found) if problem else found is None
        assert orders_before.fault(workflow.writer.right(request, random.Random(0))) is None


def test_it_is_served_without_a_graph():
    catalog = simulated_catalog().subset(SIMULATED)
    backends = create_backends(catalog, workflow=workflow)
    vine = VineLM(catalog, backends, template=workflow.template)
    [request, *_] = workflow.requests
    solve = build_graph(workflow, vine)
    state = solve.invoke(workflow.graph_input(request), context=vine.context(request=request))
    with vine.request(request=request):
        assert workflow.build(vine)(workflow.graph_input(request)) == state
    assert "lines" in state["answer"]


def test_it_is_profiled_by_replay():
    catalog = simulated_catalog().subset(SIMULATED)
    units = make_units(workflow, catalog, create_backends(catalog, workflow=workflow))
    for request in workflow.requests[:6]:
        first = units.run(request, ("sim-gemma-27b",), None)
        assert first.observation.failure is None
        if not first.observation.stopped:
            second = units.run(request, ("sim-gemma-27b", "sim-sonnet"), first.checkpoint)
            assert (second.observation.stage, second.observation.failure) == ("repair", None)


@pytest.mark.long
def test_one_command_learns_and_serves(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    brief = Defaults(0.05, max_error=1.0, max_cost_usd=1.0)
    spec = "examples.plain.app:workflow"
    assert run(workflow, spec, lambda state: "shown", ["--limit", "2"], defaults=brief) == 0
    assert capsys.readouterr().out.count("shown") == 2
