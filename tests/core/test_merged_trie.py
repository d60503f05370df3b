"""Merged tries: nodes are what is remembered of a history, edges what a choice adds."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from kit.templates import agent, branching
from kit.tries import random_merged

from vinelm.errors import TemplateError, VineLMError
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.trie import MergedTrie, Trie


def histories(template):
    """Every history as a sequence of (stage, model), by walking the automaton."""
    found, waiting = [], [((), 0)]
    while waiting:
        history, position = waiting.pop()
        found.append(history)
        for stage, after in template.flow.positions[position].arms.items():
            waiting += [((*history, (stage, model)), after) for model in template.stage(stage).models]
    return found


def node_of(trie, history):
    return trie.node([model for _, model in history], [stage for stage, _ in history])


def remembered(template, history, stages, memory=None):
    """What a node keeps of a history, written from the definition: other choices, and those of the loop."""
    inside = [choice for choice in history if choice[0] in stages]
    outside = tuple(choice if choice[0] not in stages else None for choice in history if choice[0] not in stages)
    position = template.flow.at([stage for stage, _ in history])
    kept = tuple(inside[-memory:]) if memory else (frozenset(Counter(inside).items()))
    last = history[-1] if history and (memory or history[-1][0] in stages) else None
    return position, outside, kept, last


@pytest.mark.parametrize("memory", [1, 2, 3])
@pytest.mark.parametrize("times", [1, 4])
def test_histories_share_a_node_where_they_agree_in_their_last_choices(memory, times):
    template = Template(
        (
            Stage("plan", ("m0", "m1"), answerable=False),
            Loop((Stage("act", ("m0", "m1")), Stage("look", ("m0",), answerable=False)), times, memory=memory),
            Stage("write", ("m1", "m2")),
        )
    )
    check_nodes(template, {"act", "look"}, memory)


def test_histories_share_a_node_where_they_made_the_same_choices_in_any_order():
    template = Template((Stage("plan", ("m0", "m1")), Loop((Stage("vote", ("m0", "m1", "m2")),), 4, order="ignored")))
    check_nodes(template, {"vote"})
    check_nodes(Template((*template.steps, Stage("write", ("m0", "m1")))), {"vote"})


def test_arms_are_choices_too():
    check_nodes(branching(3, memory=2), {"search", "code"}, 2)
    check_nodes(branching(3, order="ignored"), {"search", "code"})


def check_nodes(template, stages, memory=None):
    trie = Trie.from_template(template)
    node = {history: node_of(trie, history) for history in histories(template)}
    keys = {history: remembered(template, history, stages, memory) for history in node}
    assert len(set(node.values())) == len(set(keys.values())) == len(trie)
    assert len({(node[history], keys[history]) for history in node}) == len(trie)
    for history, at in node.items():
        assert trie.depth[at] == len(history)
        if history:
            assert (trie.stages[trie.stage[at]], trie.models[trie.model[at]]) == history[-1]
            assert trie.answerable[at] == template.stage(history[-1][0]).answerable
            assert node[history[:-1]] in trie.sources(at)
    for history, at in node.items():  # edges in the order of the template
        arms = template.flow.positions[template.flow.at([stage for stage, _ in history])].arms
        wanted = [node[(*history, (stage, model))] for stage in arms for model in template.stage(stage).models]
        assert trie.children(at) == wanted


def test_a_memory_as_long_as_the_loop_merges_nothing():
    merged, tree = Trie.from_template(agent(3, 4, memory=4)), Trie.from_template(agent(3, 4))
    assert merged.n_nodes == tree.n_nodes == merged.n_edges
    for path in product(("m0", "m1", "m2"), repeat=3):
        assert merged.prefix(merged.node(path)) == path


def test_a_long_loop_of_many_models_is_small():
    trie = Trie.from_template(agent(8, 25, memory=2))
    assert trie.n_nodes == 8 + 24 * 64
    assert trie.max_depth == 25
    assert trie.is_linear
    assert np.array_equal(trie.next_stage, np.where(trie.is_leaf, -1, 0))
    assert [len(level) for level in trie.levels[:4]] == [1, 8, 64, 64]
    assert np.all(np.diff(trie.depth) >= 0)


def test_its_order_is_the_same_every_time():
    template = branching(5, memory=2)
    one, other = Trie.from_template(template), Trie.from_template(template)
    assert one == other
    assert one != Trie.from_template(branching(5, memory=3))
    np.testing.assert_array_equal(np.lexsort((np.arange(one.n_edges), one.source)), np.arange(one.n_edges))
    for node in range(len(one)):
        assert all(node in one.children(source) for source in one.sources(node))


def test_too_many_nodes_are_refused_with_what_would_help():
    with pytest.raises(TemplateError) as caught:
        MergedTrie.of(agent(4, 12, memory=6), most=6_000)
    text = str(caught.value)
    assert text.startswith("the template has more than 6,000 merged histories: use memory=4 (")
    for setting, n in (("memory=4", 4), ("order='ignored'", None)):
        settings = {"memory": n} if n else {"order": "ignored"}
        assert f"{setting} ({MergedTrie.of(agent(4, 12, **settings)).n_nodes:,}" in text
    assert f"3 models ({MergedTrie.of(agent(3, 12, memory=6)).n_nodes:,})" in text
    with pytest.raises(TemplateError, match=r"use memory=1 \(48 nodes\) or 1 model \(12\)$"):
        MergedTrie.of(agent(4, 12, order="ignored"), most=100)


def test_a_stage_inside_and_outside_of_a_merging_loop_is_refused():
    stage = Stage("act", ("m0",))
    template = Template((Branch({"a": (Loop((stage,), 3, memory=1),), "b": (stage,)}),))
    with pytest.raises(TemplateError, match="'act' stands inside and outside of a loop"):
        Trie.from_template(template)


def test_what_needs_a_single_path_says_so():
    annotated = random_merged(agent(2, 5, memory=1), 0)
    for ask in (
        lambda: annotated.trie.end,
        lambda: annotated.trie.subtree(0),
        lambda: annotated.trie.accumulate(annotated.cost_usd),
        lambda: annotated.reach,
        lambda: annotated.accuracy,
        lambda: annotated.path_cost_usd,
    ):
        with pytest.raises(VineLMError, match="has no meaning on a merged trie") as caught:
            ask()
        assert "\n" not in str(caught.value)


def test_arms_belong_to_edges():
    annotated = random_merged(branching(3, memory=1), 0)
    assert len(annotated.arm) == annotated.trie.n_edges
    with pytest.raises(VineLMError, match="annotation arm has shape"):
        replace(annotated, arm=np.zeros(len(annotated.trie)))
