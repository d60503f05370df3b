"""A data set at batch prices: half the dollars, nothing bought twice, and at once what no batch can answer in time."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kit.servers.batch_provider import BatchProvider
from kit.toys.batched import KEY, PRICE, QUICK, SECRET, answer, loaded
from kit.toys.batched import run as profiled
from kit.toys.batched import settings
from kit.toys.profiling import State

import vinelm
from vinelm.errors import ConfigError, VineLMError
from vinelm.objective import Objective
from vinelm.template import Stage, Template
from vinelm.traces import ObservationStore, check_store

BEST = Objective(maximize="accuracy")
CALL_USD = PRICE.cost_usd(100, 10, 40)


@pytest.fixture
def provider(monkeypatch):
    monkeypatch.setenv(KEY, SECRET)
    made = BatchProvider(answer)
    yield made
    made.stop()


class App:
    """The toy, profiled at the provider: every request repairs until its answer passes, or the loop ends."""

    def __init__(self, provider, folder, providers=("openai",), n_requests=12, depth=3, **changes):
        self.provider, self.folder = provider, folder
        fields = {"replay": True, **changes}
        made = loaded(provider.url, providers, n_requests=n_requests, depth=depth, **fields)
        few = replace(made.workflow, requests=made.workflow.requests[:6])
        profiled(replace_workflow(made, few), folder / "profile.db", settings(workers=4, batch_prices=None))
        self.trie = vinelm.estimate(folder / "profile.db", max_error=1.0)
        self.workflow, self.catalog = made.workflow, made.catalog
        provider.at_once.clear()

    def run(self, name="a", **changes):
        fields = {"output": self.folder / f"{name}.jsonl", "budget_usd": 1.0, "workers": 4, "models": self.catalog}
        fields |= {"batch_prices": QUICK}
        return vinelm.batch(self.workflow, self.trie, BEST, **(fields | changes))

    def answers(self, name="a"):
        lines = [json.loads(line) for line in (self.folder / f"{name}.jsonl").read_text().splitlines()]
        return [(line["id"], line["status"], line["answer"], line["models"]) for line in lines]

    def committed_usd(self, name="a"):
        with ObservationStore.open(self.folder / f"{name}.db") as store:
            return store.committed_usd()


def replace_workflow(made, workflow):
    return type(made)(workflow, made.catalog, made.backends)


def test_the_answers_are_those_of_calls_at_once_for_half_the_dollars(provider, tmp_path):
    app = App(provider, tmp_path)
    once = app.run("once", batch_prices=False)
    calls = sum(provider.at_once.values())
    provider.at_once.clear()
    found = app.run()
    assert app.answers() == app.answers("once")
    assert calls > len(app.workflow.requests)  # some repair
    assert not provider.at_once
    assert sum(provider.bought.values()) == calls
    assert len(provider.batches) == max(len(models) for *_, models in app.answers())  # one wave for each invocation
    assert once.spent_usd == pytest.approx(calls * CALL_USD)
    assert found.spent_usd == pytest.approx(calls * (60 * 1.0 + 10 * 4.0 + 40 * 0.2) / 1e6)
    assert found.spent_usd == pytest.approx(app.committed_usd())
    assert found.spent_usd == pytest.approx(sum(line["cost_usd"] for line in found.lines()))
    assert check_store(tmp_path / "a.db").is_whole
