"""The adaptive sampler: a base design, and cells drawn with known chances between its paths."""

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from vinelm.api import adaptive_sampler
from vinelm.errors import ConfigError
from vinelm.estimator import NeymanSampler
from vinelm.observation import Observation
from vinelm.template import Loop, Stage, Template


def sampler_for(table: Any, seed: int = 0, **settings: Any) -> NeymanSampler:
    found = adaptive_sampler(table.template, table.catalog, table.request_ids, seed)
    return NeymanSampler(found.template, found.catalog, found.request_ids, seed, base=found.base, **settings)


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


def parted(sampler: NeymanSampler, round_: int, seen: list[Observation]) -> tuple[list[Any], list[bool]]:
    """The walks of a round, and whether each is the base design's."""
    base = set(islice(sampler.base.propose(round_, seen), len(seen)))
    walks = list(sampler.propose(round_, seen))
    return walks, [walk in base for walk in walks]


@pytest.mark.parametrize("stop", ["oracle", "workflow"])
def test_what_is_drawn_is_one_new_cell_that_is_reached(made: Any, stop: str) -> None:
    table = made.table(0, models=3, requests=60, stop=stop)
    sampler = sampler_for(table)
    seen = shown(table, sampler.propose(0, []), [])
    for round_ in (1, 2, 3):
        walks, is_base = parted(sampler, round_, seen)
        assert 0 < sum(is_base) < len(walks) <= len(seen)
        known = {(row.request_id, row.prefix): row for row in seen}
        proposed = {
            (walk.request_id, walk.path[:k])
            for walk in sampler.base.propose(round_, seen)
            for k in range(1, len(walk.path) + 1)
        }
        drawn = [walk for walk, base in zip(walks, is_base, strict=True) if not base]
        for walk in drawn:
            assert (walk.request_id, walk.path) not in known.keys() | proposed
            assert 0.0 < walk.probability <= 1.0
            if len(walk.path) > 1:
                assert not known[walk.request_id, walk.path[:-1]].ended(table.template.stop)
        assert len({(walk.request_id, walk.path) for walk in drawn}) == len(drawn)
        seen = shown(table, walks, seen)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_the_base_design_has_its_share_of_the_dollars_at_any_point(made: Any, share: float) -> None:
    """Every invocation of a model costs the same, so that what is estimated is what is paid for a first new cell."""
    table = made.table(4, models=3, requests=80, stop="workflow")
    dollars = np.array([0.0, 0.001, 0.01, 0.1])[table.trie.model + 1]
    table = replace(table, cost_usd=np.broadcast_to(dollars, table.cost_usd.shape).copy())
    sampler = sampler_for(table, base_share=share)
    seen = shown(table, sampler.propose(0, []), [])
    for round_ in (1, 2, 3):
        walks, is_base = parted(sampler, round_, seen)
        known = {(row.request_id, row.prefix) for row in seen}
        base_usd = drawn_usd = 0.0
        for walk, base in zip(walks, is_base, strict=True):
            new = next(k for k in range(1, len(walk.path) + 1) if (walk.request_id, walk.path[:k]) not in known)
            usd = float(dollars[table.trie.node(walk.path[:new])])
            base_usd, drawn_usd = base_usd + usd * base, drawn_usd + usd * (not base)
            assert base_usd >= share * (base_usd + drawn_usd) - 1.05 * dollars.max()  # estimates are shrunk a little
        assert drawn_usd > 0.0
        seen = shown(table, walks, seen)


def test_a_base_share_of_one_is_the_base_design(made: Any) -> None:
    table = made.table(0, models=3, requests=40)
    sampler = sampler_for(table, base_share=1.0)
    seen = shown(table, sampler.propose(0, []), [])
    assert list(sampler.propose(1, seen)) == list(sampler.base.propose(1, seen))


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan")])
def test_a_share_out_of_range_is_refused(made: Any, share: float) -> None:
    with pytest.raises(ConfigError, match="base_share is"):
        sampler_for(made.table(0), base_share=share)


def test_it_depends_on_its_settings_and_the_rows_alone(made: Any) -> None:
    table = made.table(1, models=2, requests=40)
    seen = shown(table, sampler_for(table, 3).propose(0, []), [])
    assert list(sampler_for(table, 3).propose(1, seen)) == list(sampler_for(table, 3).propose(1, seen))
    assert list(sampler_for(table, 3).propose(1, seen)) != list(sampler_for(table, 4).propose(1, seen))


def test_it_ends_when_everything_reached_is_bought(made: Any) -> None:
    table = made.table(2, models=2, depth=2, requests=5)
    sampler = sampler_for(table)
    seen: list[Observation] = []
    for round_ in range(20):
        walks = list(sampler.propose(round_, seen))
        if not walks:
            break
        seen = shown(table, walks, seen)
    assert len(seen) == int(table.reached[:, 1:].sum())


def test_a_template_that_merges_histories_is_refused(made: Any) -> None:
    table = made.table(0, models=2, depth=2)
    merging = Template((Stage("generate"), Loop((Stage("repair"),), times=4, memory=1)), "workflow").bind(table.template.models)
    with pytest.raises(ConfigError, match="neither branch nor merge histories"):
        adaptive_sampler(merging, table.catalog, table.request_ids, 0)


def test_rows_that_say_nothing_leave_the_round_to_the_base_design(made: Any) -> None:
    table = made.table(0, models=2, requests=30, stop="workflow")
    sampler = sampler_for(table)
    unscored = [replace(row, success=None, answer_class=0) for row in shown(table, sampler.propose(0, []), [])]
    assert list(sampler.propose(1, unscored)) == list(sampler.base.propose(1, unscored))
