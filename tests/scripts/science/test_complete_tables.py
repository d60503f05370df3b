"""Complete tables say what every path would have done, and hold some systems only."""

from itertools import product

import numpy as np
import pytest
from kit.outcome_tables import catalog, random_outcomes
from science.complete_tables import as_recorded_table, for_systems
from science.path_rivals import PathPolicy
from science.recorded_table import RecordedTable
from science.replay import follow

from vinelm.errors import ConfigError
from vinelm.requests.protocols import RequestPath
from vinelm.template import Loop, Stage, Template

TEMPLATE = Template((Stage("answer"), Loop((Stage("retry"),), times=2)))


def test_the_recorded_table_agrees_with_the_rows_of_every_path():
    outcomes = random_outcomes(12, 3, seed=4)
    models = catalog(outcomes)
    recorded = as_recorded_table(outcomes, TEMPLATE, models)
    assert isinstance(recorded, RecordedTable)
    for path in product(outcomes.systems, repeat=3):
        found = follow(recorded, recorded.trie.node(path))
        replayed = PathPolicy(path).run(outcomes)
        assert np.array_equal(found.success, replayed.success.astype(bool))
        assert np.allclose(found.cost_usd, replayed.cost_usd)
        for row, request_id in enumerate(outcomes.request_ids):
            rows = outcomes.observations([RequestPath(request_id, path)], TEMPLATE)
            assert rows[-1].success == found.success[row]
            assert sum(one.cost_usd for one in rows) == pytest.approx(found.cost_usd[row])


def test_rows_and_systems_are_chosen_by_name_and_index():
    outcomes = random_outcomes(5, 3, seed=2)
    part = for_systems(outcomes.rows([3]), ["c", "a"])
    assert (part.request_ids, part.systems) == ((outcomes.request_ids[3],), ("c", "a"))
    for name in ("success", "signal", "passed", "answer_class", "cost_usd"):
        assert getattr(part, name).tolist() == getattr(outcomes, name)[[3]][:, [2, 0]].tolist()


def test_a_catalog_in_another_order_is_refused():
    outcomes = random_outcomes(5, 3, seed=2)
    with pytest.raises(ConfigError, match="in their order"):
        as_recorded_table(outcomes, TEMPLATE, catalog(for_systems(outcomes, ["b", "a", "c"])))
