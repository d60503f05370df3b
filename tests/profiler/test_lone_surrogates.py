"""Models sometimes write half of a surrogate pair, or NUL: their answers are profiled and stored like others."""

import json

import pytest
from kit.servers.batch_provider import BatchProvider
from kit.servers.postgres_server import postgres_server_url, postgres_url  # noqa: F401 - fixtures
from kit.toys.batched import KEY, SECRET, loaded, run
from kit.toys.profiling import ToyBackend, catalog_for, new_store, toy

from vinelm.profiler import ExecutionConfig, ProfileSettings, profile
from vinelm.signals import Signals
from vinelm.traces import ObservationStore, check_store

ODD = "a\ud800b\x00"


class OddBackend(ToyBackend):
    def text(self, call, cell):
        return ODD


@pytest.mark.parametrize(
    "execution", [ExecutionConfig(), ExecutionConfig(isolation="thread", workers=2)], ids=["here", "threads"]
)
@pytest.mark.parametrize("place", ["file", "postgres"])
def test_an_answer_that_no_file_can_keep_is_profiled_and_stored(tmp_path, request, place, execution):
    address = tmp_path / "s.db" if place == "file" else request.getfixturevalue("postgres_url")
    workflow = toy(signal=lambda state: state["answer"], answer=("answer",), score=lambda request, state: False)
    with new_store(address, workflow, OddBackend()) as store:
        profile(
            workflow,
            catalog_for(workflow),
            {"test": OddBackend()},
            store,
            ProfileSettings(sampler="exhaustive", execution=execution),
        )
        rows = store.observations()
    if place == "file":
        assert check_store(address).findings == ()
    assert {row.failure for row in rows} == {None}
    assert len(rows) == 4 * (2 + 4 + 8)
    for row in rows:
        assert json.loads(row.answer) in (ODD, ODD.replace("\ud800", "?"))  # as LangGraph's checkpoints keep it


def test_such_an_answer_of_a_batch_is_kept_too(tmp_path, monkeypatch):
    monkeypatch.setenv(KEY, SECRET)
    provider = BatchProvider(lambda model, prompt: ODD)
    try:
        assert run(loaded(provider.url), tmp_path / "s.db").stopped_by == "complete"
    finally:
        provider.stop()
    with ObservationStore.open(tmp_path / "s.db") as store:
        rows = store.observations()
    assert {row.failure for row in rows} == {None}
    assert sum(provider.bought.values()) == len(rows)


def test_a_signal_that_says_what_the_model_said_is_a_text_that_every_store_takes():
    signals = Signals.of(lambda state: state["answer"], (), None, ())
    assert signals.label({"answer": ODD}, passed=None) == "a\\ud800b\\x00"
    assert signals.label({"answer": "naïve"}, passed=None) == "naïve"
