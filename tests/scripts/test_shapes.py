"""Every shape is checked, profiled, estimated, planned and served; a few rows each: scripts/shapes.py measures."""

import difflib
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("langchain")

from shapes.kit import MODELS, catalog
from shapes.measuring import Service, best_fixed_plan, bound, expected, fixed_plans, profiled

from vinelm import Objective
from vinelm.api import VineLM
from vinelm.api.estimation import estimate_store
from vinelm.backends import OfflineChatModel
from vinelm.profiler import check_workflow

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "apps" / "shapes"
MOST_CHANGED_LINES = {
    "router": 2,
    "corrective_rag": 5,
    "self_rag": 13,
    "plan_and_execute": 5,
    "reflection": 3,
    "react": 2,
    "supervisor": 5,
    "map_reduce": 2,
    "parallel_experts": 2,
    "sql_agent": 2,
    "human_in_the_loop": 2,
    "multi_turn": 2,
    "graph_agents": 2,
}
PROFILED, SERVED = 12, 3
TWO_MODELS = (MODELS[0], MODELS[-1])


def shape_of(name):
    return importlib.import_module(f"shapes.{name}.workflow").shape


def sources(name):
    return [(FOLDER / name / file).read_text(encoding="utf-8").splitlines() for file in ("graph_before.py", "graph.py")]


def changed(name):
    """The lines that differ, as a diff shows them."""
    return [line for line in difflib.ndiff(*sources(name)) if line[0] in "+-" and line[2:].strip()]


ALWAYS_RUN = ("router", "react", "parallel_experts")
"""The shapes of the short test run: one of each way to profile and to plan."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name in ALWAYS_RUN else pytest.mark.long) for name in MOST_CHANGED_LINES],
)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def annotated(name, tmp_path_factory):
    shape = shape_of(name)
    path = tmp_path_factory.mktemp(name) / "shape.db"
    rows = profiled(shape, path, shape.workflow.requests[:PROFILED], names=TWO_MODELS, budget_calls=40)
    assert rows >= 10
    return estimate_store(path, estimator="latent")


def test_the_folder_has_the_thirteen_shapes():
    assert {path.parent.name for path in FOLDER.glob("*/graph.py")} == set(MOST_CHANGED_LINES)


def test_the_graph_is_the_one_before(name):
    """The same nodes and edges, and few changed lines; before, nothing of VineLM."""
    before = importlib.import_module(f"shapes.{name}.graph_before")
    shape = shape_of(name)
    own = shape.workflow.build(VineLM(catalog())).get_graph()
    bare = before.build(OfflineChatModel()).get_graph()
    assert set(own.nodes) == set(bare.nodes)
    assert {(edge.source, edge.target) for edge in own.edges} == {(edge.source, edge.target) for edge in bare.edges}
    old, _ = sources(name)
    assert not any("vine" in line.lower() for line in old)
    taken = max(sum(line[0] == sign for line in changed(name)) for sign in "+-")
    assert 1 <= taken <= MOST_CHANGED_LINES[name]


def test_checked(name):
    wrong = [item for item in check_workflow(shape_of(name).workflow, catalog()).items if not item.is_ok]
    assert wrong == []


def test_the_requests_are_labelled(name):
    workflow, _, _ = bound(shape_of(name))
    assert len(workflow.requests) >= 60
    for request in workflow.requests[:5]:
        given = workflow.graph_input(request)
        assert not set(workflow.labels) & set(given)


def test_estimated(annotated):
    assert np.all((annotated.success >= 0) & (annotated.success <= 1))
    assert annotated.success[1:].max() > annotated.success[1:].min()
    accuracies = [expected(annotated, models)[0] for models in fixed_plans(annotated, most=60)]
    assert max(accuracies) > min(accuracies)


def test_planned_and_served(name, annotated):
    """The served plan spends money on allowed models; a fixed plan runs nothing but its models."""
    shape = shape_of(name)
    service = Service(shape, annotated)
    requests = shape.workflow.requests[PROFILED : PROFILED + SERVED]
    served = service.planned(Objective(maximize="accuracy"), requests)
    assert served.requests == SERVED
    assert served.cost_usd > 0
    cheap, dear = (  # of equal length: VineLM's plan may end a loop sooner, and then cost less than both
        service.fixed(dict.fromkeys(annotated.trie.stages, model), requests).cost_usd
        for model in sorted(annotated.trie.models, key=lambda name: name != "sim-gemma-27b")
    )
    assert 0 < cheap < dear


def test_the_best_fixed_plan_keeps_the_bound(annotated):
    rated = [expected(annotated, models) for models in fixed_plans(annotated, most=60)]
    cap = float(np.median([cost for _, cost in rated]))
    chosen = best_fixed_plan(annotated, Objective(maximize="accuracy", max_cost_usd=cap))
    accuracy, cost = expected(annotated, chosen)
    assert cost <= cap
    assert accuracy >= max(right for right, dollars in rated if dollars <= cap)


def test_the_docs_show_the_diffs(name):
    page = (ROOT / "docs" / "shapes.md").read_text(encoding="utf-8")
    for line in changed(name):
        assert f"{line[0]}{line[2:]}" in page.splitlines(), line


def test_the_script_knows_the_shapes():
    sys.path.insert(0, str(ROOT))
    try:
        script = importlib.import_module("scripts.shapes")
    finally:
        sys.path.remove(str(ROOT))
    assert set(script.SHAPES) == set(MOST_CHANGED_LINES)
    assert script.changed_lines("router") == 2
