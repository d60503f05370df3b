import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinelm.errors import TemplateError
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.trie import ARRAYS


def loop(n_models: int, depth: int) -> Template:
    models = tuple(f"m{i}" for i in range(n_models))
    return Template((Stage("generate", models), Loop((Stage("repair", models),), depth - 1)))


@pytest.mark.parametrize(("n_models", "depth", "n_nodes"), [(2, 4, 30), (8, 3, 584), (4, 6, 5460)])
def test_sizes_of_the_paper(n_models, depth, n_nodes):
    trie = Trie.from_template(loop(n_models, depth))
    assert trie.n_nodes == n_nodes
    assert trie.max_depth == depth
    assert trie.is_leaf.sum() == n_models**depth


def test_every_prefix_is_found_where_the_walk_says():
    trie = Trie.from_template(loop(3, 3))
    expected = sorted(itertools.chain(*(itertools.product(range(3), repeat=d) for d in range(4))))
    for node, path in enumerate(expected):
        names = tuple(f"m{i}" for i in path)
        assert trie.prefix(node) == names
        assert trie.node(names) == node
        inside = [i for i, other in enumerate(expected) if other[: len(path)] == path]
        assert list(range(trie.subtree(node).start, trie.subtree(node).stop)) == inside


def test_edges_are_labelled_with_stage_and_model():
    template = Template((Stage("plan", ("a",), answerable=False), Stage("solve", ("a", "b"))))
    trie = Trie.from_template(template)
    assert list(trie.edges(trie.node(("a", "b")))) == [("plan", "a"), ("solve", "b")]
    assert trie.answerable.tolist() == [False, False, True, True]


def test_stages_with_sets_of_their_own():
    trie = Trie.from_template(Template((Stage("plan", ("a", "b")), Loop((Stage("solve", ("b", "c")),), 2))))
    assert trie.n_nodes == 2 + 4 + 8
    assert trie.models == ("a", "b", "c")
    with pytest.raises(KeyError):
        trie.node(("a", "a"))
    with pytest.raises(KeyError):
        trie.node(("a", "nobody"))


@given(st.sets(st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple), min_size=1, max_size=30))
def test_irregular_tries_hold_the_given_prefixes_and_their_ancestors(paths):
    template = loop(3, 4)
    trie = Trie.from_prefixes(template, [[f"m{i}" for i in path] for path in paths])
    closed = {path[:k] for path in paths for k in range(1, len(path) + 1)}
    assert {trie.prefix(node) for node in range(1, len(trie))} == {tuple(f"m{i}" for i in p) for p in closed}
    for node in range(len(trie)):
        assert [int(trie.parent[child]) for child in trie.children(node)] == [node] * len(trie.children(node))
        below = {n for n in range(len(trie)) if trie.prefix(n)[: trie.depth[node]] == trie.prefix(node)}
        assert set(range(*trie.subtree(node).indices(len(trie)))) == below


def test_complete_prefixes_make_the_template_trie():
    template = loop(2, 4)
    whole = Trie.from_template(template)
    assert Trie.from_prefixes(template, (whole.prefix(n) for n in range(1, len(whole)))) == whole


def test_levels_partition_the_nodes_top_down():
    trie = Trie.from_template(loop(4, 3))
    assert [len(level) for level in trie.levels] == [1, 4, 16, 64]
    assert sorted(np.concatenate(trie.levels)) == list(range(len(trie)))


def test_refuses_what_the_template_does_not_allow():
    with pytest.raises(TemplateError, match="longer"):
        Trie.from_prefixes(loop(2, 2), [("m0", "m0", "m0")])
    with pytest.raises(TemplateError, match="does not allow"):
        Trie.from_prefixes(loop(2, 2), [("m7",)])
    with pytest.raises(TemplateError, match="fewer models"):
        Trie.from_template(loop(64, 6))


def test_arrays_cannot_be_changed():
    trie = Trie.from_template(loop(2, 2))
    for name in ARRAYS:
        with pytest.raises(ValueError, match="read-only"):
            getattr(trie, name)[0] = 1


def test_accumulate_sums_along_paths_in_the_last_axis():
    trie = Trie.from_template(loop(3, 3))
    values = np.random.default_rng(0).random((4, len(trie)))
    found = trie.accumulate(values)
    expected = np.stack([values[:, [0, *trie.path(node)]].sum(axis=1) for node in range(len(trie))], axis=1)
    np.testing.assert_allclose(found, expected)
    np.testing.assert_array_equal(trie.accumulate(values[1]), found[1])
