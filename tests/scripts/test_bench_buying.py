"""The comparison of samplers, on a small random table."""

from argparse import Namespace
from dataclasses import replace

import bench_buying
import numpy as np
import pytest
from kit.tables import random_table


@pytest.fixture(scope="module")
def table():
    """Two models, the second 100 times as dear; the check accepts half of all answers."""
    made = random_table(1, n_requests=60, n_models=2, depth=2)
    dollars = np.where(made.trie.model == 1, 0.01, 0.0001)
    return replace(made, cost_usd=np.broadcast_to(dollars, made.cost_usd.shape).copy())


def test_every_sampler_is_measured_on_the_same_splits(table):
    arguments = Namespace(samplers=["cascade", "priced 1"], coverage=0.2, seeds=2, promises=False)
    cascade, priced = bench_buying.run(table, arguments)
    assert (cascade["sampler"], cascade["gain"]) == ("cascade", 0.0)
    assert priced["rows"] > 1.3 * cascade["rows"]  # of a budget that is nearly all the dear model's
    assert priced["gain"] == pytest.approx(priced["vinelm"] - cascade["vinelm"])
    for result in (cascade, priced):
        assert 0.0 < result["static"] < 1.0
        assert result["mae"] > 0.0
        assert len(bench_buying.line(result).split()) >= 9


def test_a_sampler_is_named_with_its_exponent(table):
    assert bench_buying.sampler_of("priced 0.5", table, 0).alpha == 0.5
