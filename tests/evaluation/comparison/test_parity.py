"""One verdict: all that can be asked about a store agree to the last digit, over fifty stores."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from kit.outcome_tables import catalog as catalog_of
from kit.outcome_tables import random_outcomes
from kit.stores import made_store
from kit.worlds.verdicts import World

import vinelm
from vinelm.api import VineLM
from vinelm.backends import simulated_catalog
from vinelm.plans.recommendation import served_objective
from vinelm.profiler import ExecutionConfig
from vinelm.reports.store.page import store_page
from vinelm.requests.protocols import RequestPath
from vinelm.template import Loop, Stage, Template
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.verdicts import Verification
from vinelm.workflows import load_workflow

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"

PRICES = {"small": 0.001, "large": 0.01}
SKILLS = [(0.6, 0.8), (0.9, 0.92), (0.7, 0.7), (0.3, 0.9), (0.95, 0.95)]


def simulated(path, seed):
    """Of one call or two, with and without what runs today, few requests and many, kinds that pay and that do not."""
    small, large = SKILLS[seed % 5]
    kinds = None
    if seed % 9 == 4:
        kinds = {"code": {"small": small, "large": large}, "prose": {"small": large, "large": small if seed % 2 else large}}
    return made_store(
        path, {"small": small, "large": large}, PRICES, requests=(60, 90, 40)[seed % 3], depth=2 if seed % 4 == 3 else 1,
        seed=seed, today=(None, "large", "small")[seed % 3 if seed % 7 else 0], failing=0.05 * (seed % 6 == 5), kinds=kinds,
        has_answers=seed % 11 == 7,
    )  # fmt: skip


def recorded(path, seed):
    """A table of recorded answers of three systems, of which a store holds random paths."""
    table = random_outcomes(120, 3, seed=seed)
    template = Template((Stage("answer"), Loop((Stage("retry"),), times=1)), "workflow").bind(table.systems)
    rng = np.random.default_rng(seed)
    paths = [RequestPath(name, tuple(map(str, rng.choice(table.systems, 2)))) for name in table.request_ids for _ in range(4)]
    identity = StoreIdentity(
        workflow="a table", template=template.to_dict(), catalog=catalog_of(table).to_dict(), dataset_digest="d",
        fingerprint={}, is_simulated=False, created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    with ObservationStore.create(path, identity) as store:
        store.register_digests(dict.fromkeys(table.request_ids, "x"))
        store.add_many(table.observations(paths, template))
    return path


def bundled(path, seed):
    """A profile of a bundled workflow, two of which have the demo's recorded answers, or of the example of the docs."""
    name, coverage = (("exams", 0.02), ("code", 0.05), ("nl2sql-2", 0.3), (None, 0.5))[seed]
    if name is None:
        workflow = load_workflow("my_app:workflow")
        vinelm.profile(workflow, EXAMPLES / "models.toml", path, coverage=coverage)
        return path
    workflow = load_workflow(name)
    vinelm.profile(workflow, workflow.models or simulated_catalog("paper-2"), path, coverage=coverage)
    return path


def of_world(kind):
    return lambda path, seed: World(kind, seed).store(path)


STORES = [
    *((simulated, seed) for seed in range(36)),
    *((recorded, seed) for seed in range(5)),
    *((of_world(kind), seed) for kind in ("one-wins", "gain") for seed in range(2)),
    (of_world("alike"), 0),
    *((bundled, seed) for seed in range(4)),
]


def said(verdict):
    """What must agree to the last digit."""
    return verdict.advice, verdict.gain, verdict.share, verdict.sentence, verdict.held()


def asked(path, file, annotated, *, with_page):
    """The verdict on a store by everybody who can be asked, by name."""
    vinelm.save_trie(file, annotated)
    loaded = vinelm.load_trie(file)
    with_trie = vinelm.evaluate(path, loaded)
    yield "file", loaded.verdict
    yield "evaluate", vinelm.evaluate(path).verdict
    yield "evaluate a trie", with_trie.verdict
    if with_page:  # it makes its sweeps besides
        assert store_page(path, loaded, evaluation=with_trie).headline == annotated.verdict.sentence
    if annotated.verdict.is_today:
        yield "canary", VineLM(loaded.catalog, {}, trie=loaded, canary=0.1).canary.verdict
    objective = served_objective(annotated.verdict)
    if objective is None:  # no plan to ask for
        return
    decision = vinelm.plan(loaded, objective)
    yield "plan", decision.verdict
    yield "verify", Verification(decision=decision, requests=1, rows=(), spent_usd=0.0, is_simulated=True).verdict
    if loaded.signals is not None:
        yield "plan over signals", vinelm.plan(loaded, objective, signals=True).verdict
    yield "service", VineLM(loaded.catalog, {}, trie=loaded).recommendation(objective)


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (4, *range(8, len(STORES), 6)))])
def test_whoever_is_asked_gives_the_same_verdict(tmp_path, monkeypatch, first):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    words = set()
    for i, (make, seed) in enumerate(STORES[first : first + (6 if first > 4 else 4)]):
        path = make(tmp_path / f"{i}.db", seed)
        annotated = vinelm.estimate(path, max_error=1.0)
        expected = said(annotated.verdict)
        for who, verdict in asked(path, tmp_path / f"{i}.vine", annotated, with_page=not i):
            assert said(verdict) == expected, (who, first + i)
        words.add(annotated.verdict.advice)
    assert len(words) >= 1 + (not first)


def test_there_are_fifty_stores():
    assert len(STORES) == 50


def test_a_trial_and_its_estimate_give_the_same_verdict(tmp_path, monkeypatch):
    """`vinelm try` on the example of the docs, and everybody asked about the store that it leaves."""
    threads = lambda **given: ExecutionConfig(isolation="thread", workers=given["workers"])  # noqa: E731
    monkeypatch.setattr("vinelm.profiler.ExecutionConfig", threads)  # the same rows, without a fork server to start
    for name in ("models.toml", "questions.jsonl", "my_app.py"):
        shutil.copy(EXAMPLES / name, tmp_path / ("workflow.py" if name == "my_app.py" else name))
    monkeypatch.chdir(tmp_path)
    trial = vinelm.try_app("workflow.py:build", budget_usd=0.05)
    for who, verdict in asked(
        tmp_path / "app.db", tmp_path / "again.vine", vinelm.estimate("app.db", max_error=1.0), with_page=True
    ):
        assert said(verdict) == said(trial.verdict), who


def test_a_service_follows_the_verdict_of_its_file(tmp_path):
    path = made_store(tmp_path / "a.db", {"small": 0.9, "large": 0.92}, PRICES, requests=120, depth=2, today="large")
    annotated = vinelm.estimate(path)
    vine = VineLM(annotated.catalog, {}, trie=annotated)
    objective = served_objective(annotated.verdict)
    assert said(vine.recommendation(objective)) == said(annotated.verdict)
    strict = annotated.verdict.at(0.0)
    vine = VineLM(annotated.catalog, {}, trie=annotated, max_loss=0.0)
    assert said(vine.recommendation(served_objective(strict))) == said(strict)
