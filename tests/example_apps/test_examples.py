"""The example applications: what routing took, that they run as before, and that they are learned and served offline."""

import difflib
import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import StateGraph

pytest.importorskip("langchain")

from examples_before import coding as bare_coding
from examples_before import react as bare_react
from examples_before import sql as bare_sql

import examples
from examples.coding import app as coding_loop
from examples.example_cli import SIMULATED, Defaults, run
from examples.react import app as react_agent
from examples.sql import app as sql_service
from vinelm import AnnotatedTrie
from vinelm.adapters.langgraph import GraphAdapter, build_graph
from vinelm.backends import create_backends
from vinelm.backends.offline.presets import simulated_catalog
from vinelm.backends.resolver import ModelResolver
from vinelm.profiler.execution.unit import UnitRunner
from vinelm.trie.trie import Trie
from vinelm.vinefile import save_trie
from vinelm.workflows import load_workflow
from vinelm.workflows.nl2sql import load_bundled

GRAPHS = ("sql", "react", "coding")
BEFORE = Path(__file__).parents[2] / "apps" / "examples_before"
EXAMPLES = {"sql": 3, "react": 6, "coding": 2}
"""Name to requests that a test may run."""


def workflow_of(name):
    return load_workflow(f"examples.{name}.app:workflow")


def changed_lines(old, new):
    """Lines that are changed, added or removed; blank ones do not count."""
    count = 0
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            count += max(sum(bool(line.strip()) for line in part) for part in (old[a:b], new[c:d]))
    return count


@pytest.mark.parametrize("name", GRAPHS)
def test_routing_took_at_most_four_lines(name):
    folder = Path(inspect.getfile(examples)).parent / name
    old, new = (file.read_text().splitlines() for file in (BEFORE / f"{name}.py", folder / "graph.py"))
    assert 1 <= changed_lines(old, new) <= 4
    assert not any("vine" in line.replace("vinelm.workflows", "") for line in old)


def test_the_docs_show_the_diffs():
    folder = Path(inspect.getfile(examples)).parent
    docs = (Path(__file__).parents[2] / "docs" / "langgraph.md").read_text()
    for name in GRAPHS:
        old, new = (file.read_text().splitlines() for file in (BEFORE / f"{name}.py", folder / name / "graph.py"))
        changed = [line for line in difflib.ndiff(old, new) if line[0] in "+-" and line[2:].strip()]
        assert changed
        for line in changed:
            assert f"{line[0]}{line[2:]}\n" in docs, line


def test_the_graphs_ran_before_vinelm():
    data = load_bundled()
    [request, *_] = data.requests
    model = FakeListChatModel(responses=["no sql", request.data["gold_sql"]])
    app = bare_sql.graph_over(data.databases)(model).compile()
    state = app.invoke({"question": request.data["question"], "db_id": request.data["db_id"]})
    assert (state["sql"], state["status"]) == (request.data["gold_sql"], "ok")

    task = coding_loop.TASKS[0]
    coder = FakeListChatModel(responses=[task.failing_visible, task.right])
    state = bare_coding.build(coder).compile().invoke({"task": task.text, "tests": task.visible})
    assert (state["code"], state["passed"]) == (task.right, True)

    class Agent(GenericFakeChatModel):
        def bind_tools(self, tools, **kwargs):
            return self

    call = {"name": "price", "args": {"item": "lamp"}, "id": "1"}
    agent = bare_react.build(Agent(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("49.00 EUR")])))
    state = agent.invoke({"messages": [HumanMessage("two lamps?")]})
    assert [message.text for message in state["messages"][2:]] == ["24.5 EUR", "49.00 EUR"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_right_answer_is_right_and_every_wrong_one_wrong(name):
    """The writer's right answers through the real graph are scored right; its wrong ones are not."""
    workflow = workflow_of(name)
    catalog = simulated_catalog().subset(SIMULATED)

    class Always:
        is_simulated = is_virtual_time = True

        def __init__(self, write):
            self.inner = create_backends(catalog, workflow=workflow)["simulated"]
            self.inner._text = write

        def chat_model(self, model, call):
            return self.inner.chat_model(model, call)

    import random

    def right(task, behaviour, model_id, prefix):
        return task.writer.right(task.request, random.Random(0))

    def wrong(task, behaviour, model_id, prefix):
        return task.writer.wrong(task.request, task.writer.kinds[-1], random.Random(0))

    for write, expected in ((right, True), (wrong, False)):
        control = GraphAdapter(ModelResolver(catalog, {"simulated": Always(write)}), template=workflow.template)
        app = build_graph(workflow, control)
        for request in workflow.requests[: EXAMPLES[name]]:
            state = app.invoke(workflow.graph_input(request), context=control.context(request=request))
            assert workflow.score(request, state) is expected, request.id


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_is_profiled_unit_by_unit(name):
    workflow = workflow_of(name)
    catalog = simulated_catalog().subset(SIMULATED)
    worker = UnitRunner(workflow, catalog, create_backends(catalog, workflow=workflow))
    request, prefix, parent = workflow.requests[0], (), None
    for model in ("sim-gemma-27b", "sim-sonnet"):
        prefix = (*prefix, model)
        result = worker.run(request, prefix, parent)
        assert result.observation.failure is None
        assert result.observation.cost_usd > 0
        parent = result.checkpoint
        if parent is None:
            break
    assert result.observation.success is not None


def made_up_trie(workflow, path):
    catalog = simulated_catalog().subset(SIMULATED)
    template = workflow.template.bind(tuple(catalog))
    trie = Trie.from_template(template)
    size = len(trie)
    success = np.where(trie.depth > 0, 0.2 + 0.1 * trie.depth + 0.05 * trie.model, 0.0)
    zeros, some = np.zeros(size), np.where(trie.depth > 0, 0.1, 0.0)
    save_trie(path, AnnotatedTrie(trie, template, catalog, success, some, success * some, some / 100, zeros, some, zeros))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_command_serves_with_a_trie(name, tmp_path, capsys):
    workflow = workflow_of(name)
    made_up_trie(workflow, tmp_path / "x.vine")
    code = run(workflow, "not used", lambda state: "shown", ["--trie", str(tmp_path / "x.vine"), "--limit", "2"])
    out = capsys.readouterr().out
    assert code == 0
    assert "Simulated models" in out
    assert out.count("shown") == 2
    assert out.count("sim-sonnet") >= 2


def test_bad_input_is_one_line(tmp_path, capsys):
    workflow = workflow_of("react")
    assert run(workflow, "not used", lambda state: "", ["--trie", str(tmp_path / "none.vine")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.long
def test_one_command_learns_and_serves(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec, brief = "examples.react.app:workflow", Defaults(0.002, max_error=1.0, max_cost_usd=1.0)
    assert run(react_agent.workflow, spec, lambda state: "shown", ["--limit", "2"], defaults=brief) == 0
    out = capsys.readouterr().out
    assert f"$ vinelm profile {spec}" in out
    assert "--no-check" not in out  # --max-error has a meaning
    assert out.count("shown") == 2
    assert not list(tmp_path.iterdir())


def test_sql_service_writes_in_one_stage():
    built = sql_service.workflow().build(GraphAdapter(ModelResolver(simulated_catalog())))
    assert isinstance(built, StateGraph)
    assert list(built.nodes) == ["write", "execute"]


def test_react_labels_stay_out_of_the_graph():
    [request, *_] = react_agent.workflow.requests
    assert set(react_agent.workflow.graph_input(request)) == {"messages"}
    assert request.data["answer"] not in repr(react_agent.workflow.graph_input(request))


def test_modules_import_without_running():
    for name in EXAMPLES:
        importlib.import_module(f"examples.{name}")
