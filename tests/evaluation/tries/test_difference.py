"""What two tries have in common, what moved beyond noise, and which plans change."""

from dataclasses import replace

import numpy as np
import pytest

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.evaluation.tries import compare_tries
from vinelm.evaluation.tries.difference import discoveries
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie


def a_trie(success, cost, *, names=("a", "b"), se=0.01, times=1, price=1.0, **meta):
    """A loop under the oracle stop: success and dollars by model, alike at every depth."""
    rates = {"input": price, "output": 2.0, "source": "a test", "as_of": "2026-01-01"}
    catalog = Catalog.from_dict({"model": [{"name": n, "provider": "simulated", "model": n, "price": rates} for n in names]})
    template = Template((Stage("answer"), Loop((Stage("retry"),), times=times)), "oracle").bind(tuple(catalog))
    trie = Trie.from_template(template)
    success, cost = (np.append(values, 0.0)[trie.model] for values in (success, cost))  # the root's model is -1
    zeros = np.zeros(len(trie))
    errors = {} if se is None else {name: np.full(len(trie), se) for name in ("accuracy_se", "cost_se")}
    return AnnotatedTrie(
        trie, template, catalog, success, success, success, cost, zeros, zeros, zeros, meta={"workflow": "w", **meta}, **errors
    )  # fmt: skip


def test_only_what_noise_does_not_explain_has_moved():
    before = a_trie([0.5, 0.6], [0.1, 0.2])
    after = a_trie([0.5, 0.7], [0.1, 0.2])
    found = compare_tries(before, after)
    assert (found.common, found.only_before, found.only_after, found.has_same_answers) == (6, 0, 0, False)
    moved = found.metrics["accuracy"]
    assert moved.tested == 6
    assert {node.path for node in moved.moved} == {("b",), ("a", "b"), ("b", "a"), ("b", "b")}
    first = moved.moved[0]
    assert first.after - first.before == pytest.approx(max(node.after - node.before for node in moved.moved))
    assert first.standard_error == pytest.approx(np.hypot(0.01, 0.01))
    assert found.metrics["latency"].tested == 0  # no seconds are known
    quiet = compare_tries(a_trie([0.5, 0.6], [0.1, 0.2], se=0.1), a_trie([0.5, 0.7], [0.1, 0.2], se=0.1))
    assert quiet.metrics["accuracy"].moved == ()
    assert quiet.metrics["accuracy"].mean > 0


def test_of_equal_estimates_hardly_a_comparison_names_a_path():
    rng = np.random.default_rng(3)
    named = 0
    for _ in range(300):
        p = 2 * (1 - np.abs(rng.uniform(-1, 1, 40)) / 2 - 0.5)  # uniform p-values: nothing moved
        named += bool(discoveries(p, 0.05).any())
    assert named <= 300 * 0.05 + 3 * np.sqrt(300 * 0.05 * 0.95)
    assert discoveries(np.array([0.9, 1e-6, 0.04]), 0.05).tolist() == [False, True, False]
    assert discoveries(np.array([]), 0.05).tolist() == []


def test_dollars_of_the_same_answers_differ_exactly_and_plans_flip():
    before = a_trie([0.5, 0.6], [0.1, 0.2])
    after = a_trie([0.5, 0.6], [0.1, 0.05], price=0.25)
    found = compare_tries(before, after)
    assert found.has_same_answers
    assert {node.path for node in found.metrics["cost"].moved} == {("b",), ("a", "b"), ("b", "a"), ("b", "b")}
    assert all(node.standard_error is None for node in found.metrics["cost"].moved)
    assert found.metrics["accuracy"].moved == ()
    assert set(found.prices) == {"a", "b"}
    [flip] = [flip for flip in found.flips if flip.before == ("a",)]
    assert flip.after == ("b", "b")
    assert 0.1 <= flip.min_cap_usd < flip.max_cap_usd < 0.15  # from 0.15 on the first trie has ("a", "a")
    assert flip.gain == pytest.approx(0.84 - 0.5)
    assert flip.why == "beyond noise"
    dearer = compare_tries(after, before)
    assert {"over the cap"} == {flip.why for flip in dearer.flips if flip.before == ("b", "b")}


def test_models_and_invocations_that_only_one_has_are_counted():
    before = a_trie([0.5, 0.6], [0.1, 0.2])
    after = a_trie([0.5, 0.9], [0.1, 0.15], names=("a", "c"), times=2)
    found = compare_tries(before, after)
    assert (found.common, found.only_before, found.only_after) == (2, 4, 12)
    assert {flip.why for flip in found.flips if "b" in flip.before} == {"gone"}


def test_without_standard_errors_nothing_is_tested():
    found = compare_tries(a_trie([0.5, 0.6], [0.1, 0.2], se=None), a_trie([0.5, 0.7], [0.1, 0.3], se=None))
    assert found.metrics["accuracy"].tested == found.metrics["cost"].tested == 0
    assert {flip.why for flip in found.flips} <= {"within noise", "over the cap"}


def test_tries_that_cannot_be_compared_are_refused():
    trie = a_trie([0.5, 0.6], [0.1, 0.2])
    with pytest.raises(ConfigError, match="different workflows"):
        compare_tries(trie, a_trie([0.5, 0.6], [0.1, 0.2], workflow="other"))
    with pytest.raises(ConfigError, match="stop rules"):
        compare_tries(trie, replace(trie, template=trie.template.with_stop("workflow")))
    with pytest.raises(ConfigError, match="one of the tries branches"):
        compare_tries(trie, branching_trie())


def branching_trie(**changed):
    template = Template((Stage("plan"), Branch({"x": (Stage("x"),), "y": (Stage("y"),)}))).bind(("a", "b"))
    branching = Trie.from_template(template)
    half = np.full(len(branching), 0.5)
    fields = dict.fromkeys(("success", "stop", "stop_success", "cost_usd", "cost_var", "latency_s", "latency_var"), half)
    errors = dict.fromkeys(("accuracy_se", "cost_se", "latency_se"), 0.001 * half)
    arms = {"arm": half, "arm_success": 0.5 * half}
    catalog = a_trie([0.5, 0.6], [0.1, 0.2]).catalog
    return AnnotatedTrie(branching, template, catalog, **(fields | errors | arms | changed), meta={})


def test_of_tries_that_branch_the_ways_are_compared():
    before = branching_trie()
    cost = before.cost_usd.copy()
    node = next(u for u in range(1, len(cost)) if list(before.trie.edges(u)) == [("plan", "b"), ("y", "a")])
    cost[node] += 0.2
    found = compare_tries(before, branching_trie(cost_usd=cost))
    assert (found.common, found.only_before, found.only_after) == (len(cost) - 1, 0, 0)
    assert found.has_same_answers
    assert [one.path for one in found.metrics["cost"].moved] == [("plan b", "y a")]
    assert found.metrics["cost"].moved[0].after - found.metrics["cost"].moved[0].before == pytest.approx(
        0.2 * before.reach[node]
    )
    assert found.metrics["accuracy"].moved == ()
    assert found.flips == ()
