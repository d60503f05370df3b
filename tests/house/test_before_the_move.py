"""Rows that were bought before the house was rebuilt, and a trie of then, still give what they gave.

`before/` has rows of a store that a coverage goal stopped, a trie of the whole, and a plan over it, all made by the last commit
of the old house. The store's tables are those of now.
"""

import json
from pathlib import Path

from vinelm import Catalog, Objective, ObservationStore, load_trie
from vinelm.backends import create_backends
from vinelm.controller.planner import Planner
from vinelm.profiler import ProfileSettings, profile
from vinelm.traces import check_store

BEFORE = Path(__file__).parent / "before"
MODELS = Catalog.from_file(BEFORE / "models.toml")


def test_an_old_store_opens_whole(store):
    checked = check_store(store)
    assert (checked.is_whole, checked.rows) == (True, 110)
    with ObservationStore.open(store) as opened:
        assert len(opened) == 110


def test_an_old_run_goes_on_where_it_was(store, workflow):
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
