"""The store of before (``before/``) grows: every row of its keeps, and only what changed is bought."""

import json
import shutil
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from vinelm import Catalog, ObservationStore, load_trie
from vinelm.backends import create_backends
from vinelm.cli.main import main
from vinelm.errors import StoreError
from vinelm.profiler import ProfileSettings, profile
from vinelm.requests.workflow import Request
from vinelm.template import Loop, Stage, Template
from vinelm.traces import check_store, contents_of
from vinelm.traces.databases.schema import SCHEMA_VERSION

BEFORE = Path(__file__).parent / "before"
MODELS = Catalog.from_file(BEFORE / "models.toml")
LARGE = MODELS["large"]


def run(path, workflow, models=MODELS, **settings):
    """One run; returns the old rows by cell, those of afterwards, the note about the growth, and the number of new calls."""
    notes = []
    with ObservationStore.open(path) as opened:
        before = {(row.request_id, row.prefix): row for row in opened.observations()}
        backends = create_backends(models, workflow=workflow)
        result = profile(workflow, models, backends, opened, ProfileSettings(on_note=notes.append, **settings))
        after = {(row.request_id, row.prefix): row for row in opened.observations()}
    assert check_store(path).is_whole
    return before, after, [note for note in notes if "last run had other settings" not in note], result.executed


def test_a_model_and_requests_are_added_and_no_row_is_lost(store, workflow):
    third = LARGE.model_copy(update={"name": "third"})
    more = [*workflow.requests, Request("new", {"question": "What is 1 + 1?", "answer": "2"})]
    grown = replace(workflow, requests=more[::-1])
    before, after, notes, executed = run(store, grown, Catalog((*MODELS.models, third)))
    (note,) = notes
    assert note.startswith("dataset (")
    assert "new), model 'third' added since the last run: 110 of 110 rows stay; nothing is bought again" in note
    assert {cell: after[cell] for cell in before} == before
    new = after.keys() - before.keys()
    assert executed == len(new) > 0
    assert any("third" in prefix for _, prefix in new)
    assert any(request == "new" for request, _ in new)


def test_a_price_is_applied_to_its_tokens(store, workflow):
    price = LARGE.price.model_copy(update={"input": 6.0, "output": 30.0})
    models = Catalog((MODELS["small"], LARGE.model_copy(update={"price": price})))
    before, after, notes, executed = run(store, workflow, models, coverage=0.01)
    assert executed == 0
    assert "new prices are applied to the tokens of" in notes[0]
    for cell, row in before.items():
        factor = 2 if row.model == "large" else 1
        assert after[cell].cost_usd == pytest.approx(factor * row.cost_usd)


def test_a_changed_model_loses_its_own_paths_only(store, workflow):
    models = Catalog((MODELS["small"], LARGE.model_copy(update={"max_tokens": 2048})))
    before, after, notes, _ = run(store, workflow, models, coverage=0.01)
    kept = {cell: row for cell, row in before.items() if "large" not in cell[1]}
    assert 0 < len(kept) < len(before)
    assert {cell: after[cell] for cell in kept} == kept
    assert "max_tokens 2048 instead of 1024" in notes[0]
    before, after, notes, executed = run(store, workflow, coverage=0.01)
    assert executed == 0
    assert "earlier rows hold again" in notes[0]


def test_a_longer_loop_executes_again_what_it_has_no_state_of(store, workflow):
    longer = Template((Stage("solve"), Loop((Stage("fix"),), times=3)))
    before, after, _, executed = run(store, replace(workflow, template=longer))
    assert {cell: after[cell] for cell in before} == before
    assert Counter(len(prefix) for _, prefix in after)[4] > 0
    assert executed == len(after) - len(before)


def test_the_states_that_it_did_not_keep_are_said_to_be_missing(store, workflow):
    other = replace(workflow, score=lambda request, state: state.get("answer", "").strip() == request.data["answer"])
    before, _, notes, _ = run(store, other, coverage=0.01, budget_calls=1)
    assert f"of {len(before)} rows stay" in notes[0]
    assert "the scorer changed, and the state was not kept" in notes[0]
    assert "scored again from their stored state" in notes[0]


@pytest.mark.long
def test_the_command_line_says_what_would_happen_and_writes_nothing(store, workflow, monkeypatch, capsys, tmp_path):
    models = tmp_path / "models.toml"
    models.write_text((BEFORE / "models.toml").read_text().replace('model = "sonnet"', 'model = "sonnet"\nmax_tokens = 2048'))
    line = ["profile", "my_app:workflow", "--models", str(models), "--store", str(store), "--coverage", "0.3"]
    assert main([*line, "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "max_tokens of 'large' since the last run" in said
    assert "no longer hold (model 'large' has other settings (max_tokens 2048 instead of 1024)" in said
    with ObservationStore.open(store) as opened:
        assert (len(opened), contents_of(opened).retired) == (110, {})
    assert main([*line, "--isolation", "inline"]) == 0
    capsys.readouterr()
    assert main(["store", "info", str(store), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert sum(facts["retired"].values()) > 0
    assert 0 < facts["retired_usd"] < facts["committed_usd"]
    assert main(["store", "info", str(store)]) == 0
    assert "No longer valid" in capsys.readouterr().out
    assert main(["estimate", str(store), "--max-error", "1", "-o", str(tmp_path / "grown.vine")]) == 0
    assert load_trie(tmp_path / "grown.vine").catalog["large"].max_tokens == 2048


COMMANDS = (["store", "info"], ["store", "check"], ["estimate"], ["export", "-o", "x.csv"], ["profile"])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(("step", "words"), [(1, "a newer VineLM"), (-1, "an older VineLM")])
def test_a_store_of_another_version_is_one_line(store, workflow, command, capsys, step, words):
    connection = sqlite3.connect(store)
    with connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(SCHEMA_VERSION + step),))
    connection.close()
    models = ["--models", str(BEFORE / "models.toml")]
    line = ["profile", "my_app:workflow", *models, "--store", str(store)] if command == ["profile"] else [*command, str(store)]
    assert main(line) == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    assert f"written by {words} (store version {SCHEMA_VERSION + step}, this one reads {SCHEMA_VERSION}): " in said
    with pytest.raises(StoreError, match=words):
        ObservationStore.open(store)


def test_a_newer_trie_is_one_line(tmp_path, monkeypatch, capsys):
    shutil.copy(BEFORE / "trie.vine", tmp_path / "trie.vine")
    monkeypatch.setattr("vinelm.vinefile.file.VERSION", 0)
    assert main(["plan", str(tmp_path / "trie.vine"), "--maximize", "accuracy"]) == 2
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1
    assert "written by a newer VineLM" in said
