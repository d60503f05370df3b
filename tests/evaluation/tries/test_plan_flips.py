"""Plans that change between two tries that branch or merge histories, against the plan followed by hand."""

from dataclasses import replace

import numpy as np
import pytest
from kit.templates import agent, branching
from kit.tries import random_merged, routed_trie

from vinelm.controller import Planner
from vinelm.errors import ConfigError
from vinelm.evaluation.tries import compare_tries
from vinelm.objective import Objective

KINDS = {
    "branching": routed_trie,
    "merged": lambda seed: random_merged(agent(2, 3, memory=1), seed),
    "merged branches": lambda seed: random_merged(branching(2, memory=1), seed),
}


def followed(annotated, plan, node=0, *, at=0, weight=1.0):
    """(accuracy, dollars) of another trie's plan, history by history; ``node`` is of this trie, ``at`` of the plan's."""
    trie, theirs = annotated.trie, plan.graph.annotated.trie
    right, usd = weight * float(annotated.stop_success[node]), weight * float(annotated.cost_usd[node])
    for stage, children in trie.arms(node).items():
        if trie.is_merged:
            arm = int(
                trie.edge_arm[next(e for e in range(trie.n_edges) if trie.source[e] == node and trie.target[e] in children)]
            )
            first = int(np.flatnonzero(trie.edge_arm == arm)[0])
        else:
            first = children[0]
        if annotated.arm is None:
            going, so_far = 1 - annotated.stop[node], annotated.success[node] - annotated.stop_success[node]
        else:
            going, so_far = annotated.arm[first], annotated.arm_success[first]
        model = plan.next_model(at, stage)
        if model is None:
            right += weight * float(so_far)
            continue
        child = next(c for c in children if trie.models[trie.model[c]] == model)
        there = next(c for c in theirs.arms(at)[stage] if theirs.models[theirs.model[c]] == model)
        more = followed(annotated, plan, child, at=there, weight=weight * float(going))
        right, usd = right + more[0], usd + more[1]
    if not trie.arms(node):
        right += weight * float(annotated.success[node] - annotated.stop_success[node])
    return right, usd


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_old_plan_is_judged_by_the_second_trie(kind, seed):
    before, after = (replace(KINDS[kind](each), difficulty=None) for each in (seed, seed + 10))
    found = compare_tries(before, after)
    assert found.common == len(before.trie) - 1
    assert found.flips
    for flip in found.flips:
        objective = Objective(maximize="accuracy", max_cost_usd=flip.min_cap_usd)
        old, new = (Planner(each).plan(objective, elapsed_s=float(each.latency_s[0])) for each in (before, after))
        accuracy, usd = followed(after, old.plan)
        assert flip.gain == pytest.approx(new.accuracy - accuracy, abs=1e-9)
        assert flip.old_cost_usd == pytest.approx(usd, abs=1e-12)
        if flip.why == "within noise":
            assert flip.old_cost_usd <= flip.min_cap_usd * (1 + 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_tries_have_equal_plans(kind):
    found = compare_tries(KINDS[kind](1), KINDS[kind](1))
    assert found.has_same_answers
    assert found.flips == ()


def test_a_model_that_is_gone_is_said():
    before, after = routed_trie(1, n_models=3), routed_trie(1, n_models=2)
    found = compare_tries(before, after)
    assert found.only_before > 0
    assert {flip.why for flip in found.flips if "m2" in flip.before[0]} == {"gone"}


def test_of_merged_histories_plans_alone_are_compared():
    found = compare_tries(KINDS["merged"](1), KINDS["merged"](2))
    assert found.metrics == {}
    with pytest.raises(ConfigError, match="merges histories and the other does not"):
        compare_tries(KINDS["merged"](1), routed_trie(1))
