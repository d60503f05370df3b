"""The arithmetic of the README's table, against a table on which everything is executed."""

from dataclasses import replace

import numpy as np
import profile_cost
import pytest
from kit.tables import random_table


def test_a_complete_profile_costs_what_every_reached_cell_costs():
    made = random_table(5, n_requests=4_000, n_models=3, depth=3)
    prices = np.array([0.001, 0.004, 0.02])
    dollars = np.broadcast_to(np.where(made.trie.model >= 0, prices[made.trie.model], 0.0), made.cost_usd.shape).copy()
    stopped = np.random.default_rng(1).random(made.stopped.shape) >= profile_cost.FAILS
    stopped[:, 0] = False
    executed = replace(made, cost_usd=dollars, stopped=stopped).exhaustive_cost_usd
    told = profile_cost.complete_usd(4_000, list(prices))
    assert told == pytest.approx(executed, rel=0.03)


@pytest.mark.long
def test_every_set_of_models_has_a_price():
    found = profile_cost.measure()
    assert [row["models"].split(":")[0].split()[0] for row in found["rows"]] == ["2", "4", "8"]
    for row in found["rows"]:
        assert row["usd"]["1000"] == pytest.approx(10 * row["usd"]["100"])
        assert row["complete_300_usd"] == pytest.approx(row["usd"]["300"] / found["coverage"])
