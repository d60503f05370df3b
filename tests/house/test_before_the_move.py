"""Files made before the house was rebuilt still open, and the bundled workflows are still the same ones.

`before/` was made by the last commit of the old house: a store that a coverage goal stopped, a trie of the whole, a
plan over it, and the digests of every bundled workflow. Those of two examples are of later: the answer of the ReAct agent got
a key, and the tests of the coding example became expressions.
"""

import json
import shutil
import sys
from pathlib import Path

import pytest

from vinelm import Catalog, Objective, ObservationStore, load_trie
from vinelm.backends import create_backends
from vinelm.controller.planner import Planner
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import fingerprint
from vinelm.traces import check_store
from vinelm.workflows import load_workflow

BEFORE = Path(__file__).parent / "before"
MODELS = Catalog.from_file(BEFORE / "models.toml")
DIGESTS = json.loads((BEFORE / "digests.json").read_text())
MODULES = {"sql": "sql.app", "react": "react.app", "coding": "coding.app"}


def workflow_called(name, monkeypatch):
    if name == "my_app":
        monkeypatch.syspath_prepend(str(BEFORE))
        monkeypatch.delitem(sys.modules, "my_app", raising=False)
        return load_workflow("my_app:workflow")
    return load_workflow(f"examples.{MODULES[name]}:workflow" if name in MODULES else name)


@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_digests_that_earlier_versions_made_are_known(name, monkeypatch):
    """Under the version of Python that made them: they are of the text that it makes of a tree."""
    workflow = workflow_called(name, monkeypatch)
    now = fingerprint(workflow, MODELS, create_backends(MODELS, workflow=workflow), is_older=True)
    assert {**now, "dataset": workflow.dataset_digest} == DIGESTS[name]


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "before.db"
    shutil.copy(BEFORE / "store.sqlite-fixture", path)
    return path


def test_an_old_store_opens_whole(store):
    checked = check_store(store)
    assert (checked.is_whole, checked.rows) == (True, 110)
    with ObservationStore.open(store) as opened:
        assert len(opened) == 110


def test_an_old_run_goes_on_where_it_was(store, monkeypatch):
    workflow = workflow_called("my_app", monkeypatch)
    backends = create_backends(MODELS, workflow=workflow)
    with ObservationStore.open(store) as opened:
        again = profile(workflow, MODELS, backends, opened, ProfileSettings(coverage=0.3))
        assert (again.executed, again.stopped_by) == (0, "coverage")
        rest = profile(workflow, MODELS, backends, opened)
        assert (rest.executed, rest.stopped_by, len(opened)) == (196, "complete", 306)


def test_an_old_trie_gives_the_same_plan():
    trie = load_trie(BEFORE / "trie.vine")
    was = json.loads((BEFORE / "plan.json").read_text())["plans"][0]
    now = Planner(trie).plan(Objective(maximize="accuracy", max_cost_usd=0.002)).to_dict()
    for name in ("plan", "target", "accuracy", "path_cost_usd", "path_latency_s", "binding", "slack"):
        assert now[name] == was[name]
