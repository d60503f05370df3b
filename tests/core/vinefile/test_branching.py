"""``.vine`` files of tries that branch."""

from dataclasses import replace

import numpy as np
import pytest
from core.vinefile.test_file import assert_same, make_trie
from hypothesis import given, settings
from hypothesis import strategies as st

from vinelm import AnnotatedTrie, Branch, Loop, Stage, Template, VineLMError, load_trie, save_trie
from vinelm.errors import TrieFileError
from vinelm.template import END
from vinelm.trie.annotated_trie import NODE_ARRAYS
from vinelm.trie.difficulty import ARM_ARRAYS
from vinelm.trie.trie import ARRAYS, Trie

TEMPLATE = Template((
    Stage("router", answerable=False),
    Branch({"search": (Loop((Stage("search"),), 2, early_exit=True), Stage("grade")), "answer": (), "refuse": END}),
    Stage("write"),
))  # fmt: skip


def branching_trie(seed=0):
    """Random annotations that are consistent: arms and stop sum to 1, and so do the right ones to success."""
    path = make_trie(seed)
    template = TEMPLATE.bind(tuple(path.catalog))
    trie, rng = Trie.from_template(template), np.random.default_rng(seed)
    arrays = {name: rng.random(len(trie)) for name in NODE_ARRAYS}
    arm, arm_success = np.ones(len(trie)), np.zeros(len(trie))
    for node in range(len(trie)):
        arms = list(trie.arms(node).values())
        share = rng.dirichlet(np.ones(len(arms) + 1))
        right = share * rng.random(len(share)) * trie.answerable[node]
        if arms:
            arrays["stop"][node], arrays["stop_success"][node], arrays["success"][node] = share[-1], right[-1], right.sum()
        for children, q, r in zip(arms, share, right, strict=False):
            arm[children], arm_success[children] = q, r
    return AnnotatedTrie(
        trie=trie, template=template, catalog=path.catalog, **arrays, arm=arm, arm_success=arm_success, meta={"simulated": True}
    )


def with_array(annotated, name, values):
    if name not in ARRAYS:
        return replace(annotated, **{name: values})
    arrays = {key: getattr(annotated.trie, key) for key in ARRAYS} | {name: values}
    return replace(annotated, trie=Trie(stages=annotated.trie.stages, models=annotated.trie.models, **arrays))


@pytest.mark.parametrize("mmap", [True, False])
def test_it_comes_back_whole(tmp_path, mmap):
    annotated = branching_trie()
    save_trie(tmp_path / "a.vine", annotated)
    loaded = load_trie(tmp_path / "a.vine", mmap=mmap)
    assert_same(loaded, annotated)
    assert loaded.is_contingent
    np.testing.assert_allclose(loaded.reach, annotated.reach)


def test_reach_is_the_product_of_the_arms():
    annotated = branching_trie(3)
    for node in range(len(annotated.trie)):
        expected = np.prod([annotated.arm[at] for at in annotated.trie.path(node)])
        assert annotated.reach[node] == pytest.approx(expected)


@pytest.mark.parametrize("missing", [("arm",), ("arm_success",), ("arm", "arm_success")])
def test_arms_are_given_where_the_template_branches_and_follow_from_the_stops_elsewhere(missing):
    annotated = branching_trie()
    with pytest.raises(VineLMError, match=f"the template branches: give {' and '.join(missing)}$"):
        replace(annotated, **dict.fromkeys(missing))
    linear = make_trie()
    other = replace(linear, arm=np.ones(len(linear.trie)), arm_success=np.zeros(len(linear.trie)))
    assert other.arm is None
    assert other.arm_success is None
    arm, arm_success = other.arms
    np.testing.assert_allclose(arm[1:], 1.0 - linear.stop[linear.trie.parent[1:]])
    np.testing.assert_allclose(arm_success[1:], (linear.success - linear.stop_success)[linear.trie.parent[1:]])


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("arm", lambda v: np.where(np.arange(len(v)) == 1, 1.5, v), "arm is not within"),
        ("arm", lambda v: np.where(np.arange(len(v)) == 1, v / 2, v), "arm differs between models"),
        ("arm", lambda v: np.minimum(v * 3 + 0.4, 1.0), "sum to more than 1"),
        ("arm_success", lambda v: v + 1.0, "arm_success is"),
        ("arm_success", lambda v: np.where(v > 0, 1.0, v), "arm_success is larger than arm"),
        ("stage", lambda v: np.where(v == 2, 1, v), "trie.stage does not follow|two children of one model"),
        ("stage", lambda v: np.where(v == 1, 3, v), "trie.stage does not follow|two children of one model"),
    ],
)
def test_a_wrong_array_is_named(tmp_path, name, change, problem):
    annotated = branching_trie()
    values = getattr(annotated.trie if name in ARRAYS else annotated, name)
    save_trie(tmp_path / "a.vine", with_array(annotated, name, change(values)))
    with pytest.raises(TrieFileError, match=problem) as error:
        load_trie(tmp_path / "a.vine")
    assert "\n" not in str(error.value)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whatever_loads_has_arms_that_are_probabilities(tmp_path_factory, data):
    annotated = branching_trie()
    name = data.draw(st.sampled_from([*ARRAYS, *ARM_ARRAYS]))
    values = getattr(annotated.trie if name in ARRAYS else annotated, name).copy()
    for _ in range(data.draw(st.integers(1, 4))):
        i, j = (data.draw(st.integers(0, len(values) - 1)) for _ in range(2))
        values[i], values[j] = values[j], values[i]
    path = tmp_path_factory.mktemp("fuzz") / "a.vine"
    save_trie(path, with_array(annotated, name, values))
    try:
        loaded = load_trie(path)
    except TrieFileError:
        return
    for node in range(len(loaded.trie)):
        shares = [loaded.arm[children[0]] for children in loaded.trie.arms(node).values()]
        assert sum(shares) <= 1.0 + 1e-6
    assert (loaded.reach <= 1.0 + 1e-6).all()
