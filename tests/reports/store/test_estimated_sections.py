import pytest
from kit.tables import random_table
from science.recorded_table import RecordedTable

from vinelm.api.estimation import require_same_workflow, with_provenance
from vinelm.errors import ConfigError
from vinelm.estimator import make_estimator
from vinelm.evaluation.plans.path_plans import PathPlans
from vinelm.profiler import CascadeSampler
from vinelm.reports.store.estimated_sections import estimated_frontiers
from vinelm.rows.observation import Observation


def sampled_rows(table: RecordedTable, coverage: float, seed: int) -> list[Observation]:
    """Rows of the cascade sampler's walks until ``coverage`` of the table's exhaustive dollars is spent; stops respected."""
    if not 0.0 < coverage <= 1.0:
        raise ValueError(f"coverage is {coverage}: it must be a fraction in (0, 1]")
    row_of = {request_id: row for row, request_id in enumerate(table.request_ids)}
    cap, n_cells = coverage * table.exhaustive_cost_usd, int(table.reached[:, 1:].sum())
    spent, bought = 0.0, dict[tuple[int, int], Observation]()
    for walk in CascadeSampler(table.template, table.request_ids, seed).propose(0, ()):
        row, node = row_of[walk.request_id], 0
        for model in walk.path:
            node = table.trie.child(node, model)
            if (row, node) not in bought:
                bought[row, node] = table.observation(row, node)
                spent += float(table.cost_usd[row, node])
                if spent >= cap or len(bought) == n_cells:
                    return list(bought.values())
            if table.ended[row, node]:
                break
    return list(bought.values())


@pytest.fixture(scope="module")
def sampled():
    """A table, rows of half its cost, and the trie fitted to them."""
    table = random_table(3, n_requests=60, n_models=2, depth=2)
    rows = sampled_rows(table, 0.5, 0)
    return table, rows, make_estimator("cascade").fit(rows, table.template, table.catalog).annotated_


def test_a_sample_costs_what_was_asked_for_and_respects_stops(sampled):
    table, rows, _ = sampled
    spent = sum(row.cost_usd for row in rows)
    assert 0.5 <= spent / table.exhaustive_cost_usd < 0.5 + max(row.cost_usd for row in rows) / table.exhaustive_cost_usd
    cells = [(row.request_id, row.prefix) for row in rows]
    assert len(set(cells)) == len(cells)
    for row in rows:
        request, node = table.request_ids.index(row.request_id), table.trie.node(row.prefix)
        assert table.reached[request, node]


def test_a_whole_sample_is_the_whole_table():
    table = random_table(5, n_requests=6, n_models=2, depth=2)
    assert len(sampled_rows(table, 1.0, 0)) == table.reached[:, 1:].sum()


def test_estimated_frontiers_never_fall_and_vinelm_is_on_top(sampled):
    _, _, annotated = sampled
    frontiers = estimated_frontiers(PathPlans(annotated), "max_cost_usd")
    vinelm, static, single = ([p.accuracy.value for p in f.points] for f in frontiers)
    assert vinelm == sorted(vinelm)
    for rival in (static, single):
        assert all(a >= b - 1e-12 for a, b in zip(vinelm[-len(rival) :], rival, strict=True))


def test_provenance_says_what_was_spent(sampled):
    table, rows, annotated = sampled
    meta = with_provenance(annotated, rows, requests_registered=60, workflow="toy", dataset_digest="d").meta
    assert meta["spent_usd"] == pytest.approx(sum(row.cost_usd for row in rows))
    assert meta["coverage"] == pytest.approx(0.5, abs=0.1)
    assert meta["stop"] == table.template.stop


@pytest.mark.parametrize(("workflow", "digest", "words"), [("other", "d", "'toy'"), ("toy", "e", "another dataset")])
def test_a_trie_of_something_else_is_refused(sampled, workflow, digest, words):
    _, rows, annotated = sampled
    known = with_provenance(annotated, rows, requests_registered=60, workflow="toy", dataset_digest="d")
    require_same_workflow(known, "toy", "d", "t.vine")
    with pytest.raises(ConfigError, match=words):
        require_same_workflow(known, workflow, digest, "t.vine")
