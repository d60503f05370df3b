import numpy as np
import pytest
from kit.stores import made_store

from vinelm.evaluation.off_policy.buying import BoughtRows
from vinelm.evaluation.off_policy.followed import Followed, followed
from vinelm.evaluation.off_policy.intervals import effective_number
from vinelm.evaluation.off_policy.steps import PathSteps
from vinelm.traces import ObservationStore


def of(latency, weight=None):
    latency = np.asarray(latency, float)
    return Followed(np.ones(len(latency)) if weight is None else np.asarray(weight, float), latency / 100.0, latency)


def test_quantiles_are_those_of_the_weighted_requests():
    found = of(range(1, 401))
    assert found.latency_quantile(0.5) == 200.0
    assert found.latency_quantile(0.95) == 380.0
    assert found.latency_quantile(0.99) == 396.0
    heavy = of([1.0] * 60 + [9.0] * 60, [3.0] * 60 + [1.0] * 60)
    assert heavy.latency_quantile(0.7) == 1.0
    assert heavy.latency_quantile(0.8) == 9.0


@pytest.mark.parametrize(
    ("n", "known"), [(7, ()), (8, (0.5,)), (39, (0.5,)), (40, (0.5, 0.95)), (199, (0.5, 0.95)), (200, (0.5, 0.95, 0.99))]
)
def test_a_quantile_needs_requests_beyond_it(n, known):
    found = of(range(n))
    assert tuple(level for level in (0.5, 0.95, 0.99) if found.latency_quantile(level) is not None) == known


def test_unequal_weights_say_less():
    found = of(range(200), [1.0] * 199 + [1_000.0])
    assert effective_number(found.weight) < 8
    assert found.latency_quantile(0.5) is None
    assert found.share_above(latency_s=10.0) is None


def test_shares_beyond_a_bound():
    found = of(range(1, 101))
    assert found.share_above(latency_s=90.0) == pytest.approx(0.1)
    assert found.share_above(cost_usd=0.9) == pytest.approx(0.1)
    assert found.share_above(latency_s=1e9) == 0.0


def test_following_needs_every_row_and_weighs_by_the_chance_of_having_them(tmp_path):
    import vinelm

    path = made_store(tmp_path / "s.db", {"small": 0.5, "large": 0.8}, {"small": 0.001, "large": 0.01}, requests=100)
    trie = vinelm.estimate(path, check=False)
    with ObservationStore.open(path) as store:
        rows, requests = store.observations(), store.request_ids()
    bought = BoughtRows.of(requests, rows, trie.template)
    whole = {(row.request_id, row.prefix): row for row in rows}
    found = followed(PathSteps(trie, trie.trie.node(("small", "large"))), bought)
    expected = []
    for request in requests:
        first, second = whole[request, ("small",)], whole.get((request, ("small", "large")))
        if first.stopped:
            expected.append((first.latency_s, first.cost_usd))
        elif second is not None:
            expected.append((first.latency_s + second.latency_s, first.cost_usd + second.cost_usd))
    np.testing.assert_allclose(np.sort(found.latency_s), sorted(latency for latency, _ in expected))
    np.testing.assert_allclose(np.sort(found.cost_usd), sorted(cost for _, cost in expected))
    assert found.weight.sum() == pytest.approx(len(requests)), "those without the second row are stood for by the others"
