"""The verbs of a notebook: profile, estimate, plan, report, on the app of docs/examples."""

import dataclasses
import shutil
import sys
from datetime import date
from pathlib import Path

import pytest

import vinelm
from vinelm import Catalog, ConfigError, EvidenceError, ExecutionConfig, Model, Objective, ObservationStore, Price, StoreError
from vinelm.api.planning import ObjectiveFields

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
APP = "my_app:workflow"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The example with a store and its trie."""
    home = tmp_path_factory.mktemp("app")
    for name in ("my_app.py", "questions.jsonl", "models.toml"):
        shutil.copy(EXAMPLES / name, home)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(home))
        patch.delitem(sys.modules, "my_app", raising=False)
        vinelm.profile(APP, home / "models.toml", home / "a.db", coverage=0.3)
        vinelm.save_trie(home / "a.vine", vinelm.estimate(home / "a.db"))
        yield home
        patch.delitem(sys.modules, "my_app")


@pytest.fixture(autouse=True)
def there(folder, monkeypatch):
    monkeypatch.chdir(folder)


@pytest.mark.usefixtures("warm_python")
def test_a_workflow_object_threads_and_an_open_store_give_the_same_rows(tmp_path):
    workflow = vinelm.load_workflow(APP)

    def stop(now):
        if now.executed == 20:
            raise KeyboardInterrupt

    begun = vinelm.profile(workflow, "models.toml", tmp_path / "b.db", coverage=0.3, on_progress=stop)
    assert begun.stopped_by == "interrupted"
    seen = []
    with ObservationStore.open(tmp_path / "b.db") as store:
        result = vinelm.profile(
            workflow, Catalog.from_file("models.toml"), store, coverage=0.3,
            execution=ExecutionConfig(isolation="thread", workers=2), on_progress=seen.append,
        )  # fmt: skip
        assert len(seen) == result.executed
        rows = set(store.observations())  # still open
    with ObservationStore.open("a.db") as other:
        assert rows == set(other.observations())


def test_without_a_cap_it_stops_at_two_per_cent(tmp_path):
    result = vinelm.profile(APP, "models.toml", tmp_path / "b.db")
    assert result.stopped_by == "coverage"
    assert 0.02 <= result.coverage < 0.2


def test_models_that_cost_money_need_a_budget_and_nothing_is_written(tmp_path):
    price = Price(input=1, output=1, source="a test", as_of=date(2026, 1, 1))
    model = Model(name="m", provider="openai", model_id="m", engine="e", price=price, api_base="http://127.0.0.1:1/v1")
    with pytest.raises(ConfigError, match="budget_usd") as caught:
        vinelm.profile(APP, Catalog([model]), tmp_path / "b.db", coverage=0.1)
    assert caught.value.code == "budget-required"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [{"coverage": 2.0}, {"sampler": "nobody"}, {"budget_usd": -1.0}])
def test_what_makes_no_sense_is_refused_before_a_store_is_made(tmp_path, wrong):
    with pytest.raises(ConfigError):
        vinelm.profile(APP, "models.toml", tmp_path / "b.db", **wrong)
    assert not list(tmp_path.iterdir())


def test_another_seed_is_another_store():
    with pytest.raises(StoreError):
        vinelm.profile(APP, "models.toml", "a.db", coverage=0.3, seed=1)


def test_an_estimate_knows_its_evidence_and_refuses_thin_ones():
    trie = vinelm.estimate("a.db")
    assert trie.meta["evidence"]["observations"] == trie.meta["observations"]
    with ObservationStore.open("a.db") as store:
        assert "evidence" not in vinelm.estimate(store, check=False).meta
    with pytest.raises(EvidenceError):
        vinelm.estimate("a.db", max_error=0.001)
    with pytest.raises(ConfigError, match="max_error") as caught:
        vinelm.estimate("a.db", max_error=15)
    assert caught.value.code == "max-error"


def test_a_plan_takes_an_objective_or_its_fields():
    trie = vinelm.load_trie("a.vine")
    objective = Objective(maximize="accuracy", max_cost_usd=0.001)
    assert vinelm.plan(trie, objective) == vinelm.plan("a.vine", maximize="accuracy", max_cost_usd=0.001)
    with pytest.raises(ConfigError, match="max_cost_usd"):
        vinelm.plan(trie, objective, max_cost_usd=0.1)
    with pytest.raises(ConfigError, match="exactly one target"):
        vinelm.plan(trie)


def test_the_keywords_of_a_plan_are_the_fields_of_an_objective():
    assert list(ObjectiveFields.__annotations__) == [field.name for field in dataclasses.fields(Objective) if field.init]


def test_a_dry_run_of_a_profile_forecasts_and_writes_nothing(tmp_path, monkeypatch):
    (tmp_path / "few.jsonl").write_text("".join((Path("questions.jsonl").read_text().splitlines(keepends=True))[:25]))
    notes = []
    found = vinelm.profile(
        APP,
        None,
        tmp_path / "b.db",
        preset="paper-2",
        dataset=tmp_path / "few.jsonl",
        limit=20,
        dry_run=True,
        on_note=notes.append,
    )
    assert (found.stopped_by, found.executed, found.store) == ("dry-run", 0, None)
    assert len(found.forecast.workflow.requests) == 20
    assert found.forecast.run.all_calls.middle > 0
    assert notes == ["simulated models (preset paper-2, 2 models): give models for real ones"]
    assert not (tmp_path / "b.db").exists()


@pytest.mark.long
def test_a_workflow_given_by_name_runs_in_processes_without_a_source(tmp_path):
    result = vinelm.profile(
        APP, "models.toml", tmp_path / "b.db", coverage=0.3, execution=ExecutionConfig(isolation="process", workers=2)
    )
    assert not result.failures
    with ObservationStore.open(tmp_path / "b.db") as store, ObservationStore.open("a.db") as other:
        assert set(store.observations()) == set(other.observations())


def test_a_workflow_object_needs_a_source_and_takes_no_dataset(tmp_path):
    workflow = vinelm.load_workflow(APP)
    with pytest.raises(ConfigError, match="name it as module:attribute, give a source"):
        vinelm.profile(workflow, "models.toml", tmp_path / "b.db", execution=ExecutionConfig(isolation="process"))
    with pytest.raises(ConfigError, match="dataset has no effect on a Workflow object"):
        vinelm.profile(workflow, "models.toml", tmp_path / "b.db", dataset="questions.jsonl")
    assert not (tmp_path / "b.db").exists()
