from itertools import islice
from typing import Any

import numpy as np
import pytest

from vinelm.estimator import NeymanSampler
from vinelm.estimator.sampling.neyman import _QuestionDesign
from vinelm.observation import Observation


def shown(table: Any, walks: Any, seen: list[Observation]) -> list[Observation]:
    """Goes along the walks as the profiler does; gives back what was seen and the walks' new rows."""
    rows = {(row.request_id, row.prefix): row for row in seen}
    for walk in walks:
        request, node = table.request_ids.index(walk.request_id), 0
        for model in walk.path:
            node = table.trie.child(node, model)
            row = table.observation(request, node)
            rows.setdefault((row.request_id, row.prefix), row)
            if row.ended(table.template.stop):
                break
    return list(rows.values())


@pytest.mark.parametrize("stop", ["oracle", "workflow"])
def test_later_rounds_branch_from_failures_already_paid_for(made: Any, stop: str) -> None:
    table = made.table(0, models=3, requests=60, stop=stop)
    sampler = NeymanSampler(table.template, table.catalog, table.request_ids, 0)
    seen = shown(table, sampler.propose(0, []), [])
    walks = list(sampler.propose(1, seen))
    assert 0 < len(walks) <= len(seen)
    known = {(row.request_id, row.prefix): row for row in seen}
    for walk in walks:
        assert (walk.request_id, walk.path) not in known
        if len(walk.path) > 1:
            assert not known[walk.request_id, walk.path[:-1]].ended(table.template.stop)
    assert len(set(walks)) == len(walks)


def test_it_depends_on_its_settings_and_the_rows_alone(made: Any) -> None:
    table = made.table(1, models=2, requests=40)
    make = lambda seed: NeymanSampler(table.template, table.catalog, table.request_ids, seed)  # noqa: E731
    seen = shown(table, make(3).propose(0, []), [])
    assert list(make(3).propose(1, seen)) == list(make(3).propose(1, seen))
    assert list(make(3).propose(0, [])) != list(make(4).propose(0, []))


def test_it_ends_when_everything_reached_is_bought(made: Any) -> None:
    table = made.table(2, models=2, depth=2, requests=5)
    sampler = NeymanSampler(table.template, table.catalog, table.request_ids, 0)
    seen: list[Observation] = []
    for round_ in range(20):
        walks = list(islice(sampler.propose(round_, seen), 1000))
        if not walks:
            break
        seen = shown(table, walks, seen)
    assert len(seen) == int(table.reached[:, 1:].sum())


def test_without_anything_shared_the_gain_is_neymans(made: Any) -> None:
    """Independent effects: one more answer takes w c^2 t / (1 + w c) off, and learning n answers is n single ones."""
    covariance, target = np.diag([0.5, 2.0]), np.diag([1.0, 3.0])
    design = _QuestionDesign(np.eye(2), covariance, target, np.array([0.25, 0.1]))
    np.testing.assert_allclose(design.gain(), [0.25 * 0.25 / 1.125, 0.1 * 4.0 * 3.0 / 1.2])
    one, many = (_QuestionDesign(np.eye(2), covariance, target, np.array([0.25, 0.1])) for _ in range(2))
    for _ in range(3):
        one.condition(1, 1)
    many.condition(1, 3)
    np.testing.assert_allclose(one.covariance, many.covariance)
    assert many.gain()[1] < design.gain()[1]
