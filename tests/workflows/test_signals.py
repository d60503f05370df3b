"""Every bundled workflow and example shows something: its rows have signals, and classes where an answer has a key."""

import importlib.util

import pytest

from vinelm.backends import create_backends, simulated_catalog
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.traces import ObservationStore
from vinelm.workflows import load_workflow

SHOWN = {
    "nl2sql": {"error", "empty", "rows"},
    "mathqa": {"holds", "differs", "no answer"},
    "graphqa": {"finished", "facts", "empty", "code error", "refused", "form", None},
    "support": {"error", "empty", "rows", "article", "no article", "reply", "no reply"},
    "examples.sql.app:workflow": {"error", "empty", "rows"},
    "examples.react.app:workflow": {"answer", "found", "error"},
    "examples.plain.app:workflow": {"error", "failed", "passed"},
}


@pytest.mark.parametrize("name", SHOWN)
def test_rows_have_signals_and_classes(tmp_path, name):
    if "graphqa" in name:
        pytest.importorskip("pydantic_monty", reason="the extra graph is not installed")
    if "react" in name and importlib.util.find_spec("langchain") is None:
        pytest.skip("langchain is not installed")
    workflow = load_workflow(name)
    catalog = simulated_catalog()
    backends = create_backends(catalog, workflow=workflow, seed=0)
    with ObservationStore.create(tmp_path / "s.db", store_identity(workflow, catalog, backends)) as store:
        profile(workflow, catalog, backends, store, ProfileSettings(requests=workflow.requests[:3], budget_calls=80))
        rows = store.observations()
    assert {row.signal for row in rows if row.failure is None and row.stage != "router"} <= SHOWN[name]
    assert len({row.signal for row in rows} - {None}) >= 2
    if workflow.answer:
        classes = [row.answer_class for row in rows]
        assert 0 in classes
        assert any(number for number in classes if number)  # some answers of a request differ
        assert all(row.answer_class is None for row in rows if row.answer is None)
    else:
        assert {row.answer for row in rows} == {None}


def test_the_tests_of_the_coding_loop_are_its_signal():
    from examples.coding.app import same_code, tests_say

    right = "def f(x):\n    return x  # so\n"
    assert tests_say({"code": right, "passed": True}) == "passed"
    assert tests_say({"code": right, "passed": False}) == "failed"
    assert tests_say({"code": "def f(x)", "passed": False}) == "syntax error"
    assert same_code(right, "def f(x):\n  return x")
    assert not same_code(right, "def f(x):\n    return -x")
    assert not same_code("def f(x)", "def f(x)")
