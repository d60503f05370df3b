"""What a plan promises: the estimate less the optimism of its selection, and an interval that allows for it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import stdtrit

from vinelm.catalog import Catalog
from vinelm.plans.promise import Z90, Promise, SelectionOptimism, error_between_fits, single_model_paths
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.vinefile import load_trie, save_trie

PRICE = {"input": 1.0, "output": 2.0, "source": "a test", "as_of": "2025-06-01"}
MODELS = Catalog.from_dict({"model": [{"name": n, "provider": "simulated", "model": n, "price": PRICE} for n in "ab"]})
CURVE = {"cost_usd": [1.0, 100.0], "accuracy": [0.02, 0.18], "advantage": [0.0, 0.1]}


def a_trie(selection=None, *, silent: bool = False) -> AnnotatedTrie:
    """Models a and b, depth 2, b twice as expensive; accuracies rise with the node's number."""
    second = Stage("repair") if not silent else Stage("repair", answerable=False)
    template = Template((Stage("generate"), Loop((second,), times=2)), "workflow").bind(("a", "b"))
    trie = Trie.from_template(template)
    zero, size = np.zeros(len(trie)), len(trie)
    meta = {} if selection is None else {"evidence": {"selection": selection}}
    return AnnotatedTrie(
        trie=trie, template=template, catalog=MODELS, success=np.linspace(0.0, 0.8, size), stop=zero, stop_success=zero,
        cost_usd=np.where(trie.model == 1, 2.0, 1.0) * (np.arange(size) > 0), cost_var=zero, latency_s=zero, latency_var=zero,
        accuracy_se=np.full(size, 0.05), meta=meta,
    )  # fmt: skip


def promise(**fields) -> Promise:
    known = {"estimate": 0.768, "standard_error": 0.094, "optimism": 0.184}
    compared = {"advantage": 0.2, "advantage_optimism": 0.1, "reference": 1}
    return Promise(**{**known, **compared, **fields})


def test_half_of_the_optimism_comes_off_and_the_rest_widens_the_interval():
    """The trial of issue 11: 76.8 % (61 to 92) was promised, with an optimism of 18.4 points beside it."""
    found, before = promise(), promise(optimism=None)
    assert found.accuracy == pytest.approx(0.676)
    assert found.interval is not None
    assert before.interval is not None
    assert before.interval == pytest.approx((0.613, 0.923), abs=0.001)
    assert found.interval[1] - found.interval[0] > before.interval[1] - before.interval[0]
    assert found.half_width == pytest.approx(1.645 * math.sqrt(0.094**2 + 0.184**2 / 12), abs=0.001)
    assert found.half_width > 0.15 > promise(optimism=None, standard_error=0.09).half_width


def test_a_prediction_allows_for_the_requests_that_are_served():
    widths = [high - low for low, high in (promise().prediction(n) for n in (20, 100, 10**9))]  # type: ignore[misc]
    assert widths[0] > widths[1] > widths[2]
    assert promise().prediction(10**9) == pytest.approx(promise().interval, abs=1e-4)
    low, high = promise(estimate=1.0, standard_error=0.0, optimism=0.0).prediction(10)  # type: ignore[misc]
    assert low < 1.0 == high


def test_without_standard_errors_there_is_no_interval():
    found = promise(standard_error=None)
    assert found.interval is None
    assert found.prediction(10) is None
    assert math.isnan(found.half_width)


@pytest.mark.parametrize(
    ("fields", "decides"),
    [
        ({}, False),
        ({"advantage": 0.1}, True),
        ({"advantage": 0.05}, True),
        ({"advantage": 0.05, "advantage_optimism": None}, False),
        ({"advantage": 0.0, "advantage_optimism": 0.0}, False),
        ({"advantage": 0.0, "reference": None}, False),
    ],
)
def test_optimism_decides_where_it_can_produce_the_whole_advantage(fields, decides):
    assert promise(**fields).is_decided_by_optimism is decides


def test_the_curve_is_read_over_the_cost_and_travels_with_the_file(tmp_path):
    save_trie(tmp_path / "t.vine", a_trie(CURVE))
    curve = SelectionOptimism.of(load_trie(tmp_path / "t.vine"))
    assert curve is not None
    assert curve.to_dict() == CURVE
    assert [curve.accuracy_at(cost) for cost in (0.0, 1.0, 10.0, 100.0, 1e9)] == pytest.approx([0.02, 0.02, 0.1, 0.18, 0.18])
    assert curve.advantage_at(10.0) == pytest.approx(0.05)


def test_a_trie_of_an_older_version_promises_its_estimate():
    annotated = a_trie()
    found = Promise.of(annotated, 7)
    assert SelectionOptimism.of(annotated) is None
    assert found.optimism is None
    assert found.accuracy == found.estimate == annotated.accuracy[7]
    assert SelectionOptimism.of(replace(annotated, meta={"evidence": None})) is None


def test_the_reference_is_the_best_single_model_that_costs_no_more():
    annotated = a_trie(CURVE)
    mixed = annotated.trie.node(("a", "b", "b"))
    found = Promise.of(annotated, mixed)
    assert found.reference is not None
    path = annotated.trie.prefix(found.reference)
    alone = [
        annotated.trie.prefix(node)
        for node in range(1, len(annotated.trie))
        if len(set(annotated.trie.prefix(node))) == 1 and annotated.path_cost_usd[node] <= annotated.path_cost_usd[mixed]
    ]
    assert path == max(alone, key=lambda models: annotated.accuracy[annotated.trie.node(models)])
    assert found.advantage == pytest.approx(annotated.accuracy[mixed] - annotated.accuracy[found.reference])
    assert Promise.of(annotated, annotated.trie.node(("b", "b"))).reference is None


@pytest.mark.parametrize("silent", [False, True])
def test_single_model_paths(silent):
    trie = a_trie(silent=silent).trie
    want = [bool(trie.answerable[u]) and len(set(trie.prefix(u))) == 1 for u in range(len(trie))]
    assert single_model_paths(trie).tolist() == want


@pytest.mark.parametrize("fits", [4, 8, 32])
def test_the_error_between_fits_is_that_of_few_balanced_ones(fits):
    by_fit = np.random.default_rng(fits).normal(0.7, 0.02, (fits, 3))
    expected = by_fit.std(0, ddof=1) * np.sqrt((fits + 1) / fits) * stdtrit(fits - 1, 0.95) / Z90
    np.testing.assert_allclose(error_between_fits(by_fit), expected, rtol=0.02)
