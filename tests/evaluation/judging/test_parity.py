"""One verdict: an estimate, its file, an evaluation, the report's page and a service agree to the last digit."""

import numpy as np
import pytest
from kit.outcome_tables import catalog as catalog_of
from kit.outcome_tables import random_outcomes
from kit.stores import made_store
from kit.worlds.verdicts import World

import vinelm
from vinelm.api import VineLM
from vinelm.plans.recommendation import served_objective
from vinelm.reports.store.page import store_page
from vinelm.requests.protocols import RequestPath
from vinelm.template import Loop, Stage, Template
from vinelm.traces import ObservationStore, StoreIdentity

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


STORES = [
    *((simulated, seed) for seed in range(28)),
    *((recorded, seed) for seed in range(2)),
    *((lambda path, seed: World("one-wins", seed).store(path), seed) for seed in range(1)),
]


def said(verdict):
    """What must agree to the last digit."""
    return verdict.advice, verdict.gain, verdict.share, verdict.sentence, verdict.held()


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(8, len(STORES), 8))])
def test_whoever_is_asked_gives_the_same_verdict(tmp_path, first):
    words = set()
    for i, (make, seed) in enumerate(STORES[first : first + 8]):
        path = make(tmp_path / f"{i}.db", seed)
        annotated = vinelm.estimate(path, max_error=1.0)
        vinelm.save_trie(tmp_path / f"{i}.vine", annotated)
        loaded = vinelm.load_trie(tmp_path / f"{i}.vine")
        alone, with_trie = vinelm.evaluate(path), vinelm.evaluate(path, loaded)
        expected = said(annotated.verdict)
        for found in (loaded.verdict, alone.verdict, with_trie.verdict):
            assert said(found) == expected
        if not i:  # the page makes its sweeps besides
            assert store_page(path, loaded, evaluation=with_trie).headline == annotated.verdict.sentence
        words.add(annotated.verdict.advice)
    assert len(words) >= 2


def test_there_are_thirty_stores_or_more():
    assert len(STORES) >= 30


def test_a_service_follows_the_verdict_of_its_file(tmp_path):
    path = made_store(tmp_path / "a.db", {"small": 0.9, "large": 0.92}, PRICES, requests=120, depth=2, today="large")
    annotated = vinelm.estimate(path)
    vine = VineLM(annotated.catalog, {}, trie=annotated)
    objective = served_objective(annotated.verdict)
    assert said(vine.recommendation(objective)) == said(annotated.verdict)
    strict = annotated.verdict.at(0.0)
    vine = VineLM(annotated.catalog, {}, trie=annotated, max_loss=0.0)
    assert said(vine.recommendation(served_objective(strict))) == said(strict)
