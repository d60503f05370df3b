"""Labels of prompts, against their definition: every prefix compared with every other call's text."""

import random
from dataclasses import astuple
from itertools import pairwise

import pytest

from vinelm.prompts.radix import PromptTree, common_tokens, known_tokens
from vinelm.prompts.shape import BLOCK_BYTES, shape_of

KEY = b"a key of this test"


def text(parts):
    return b"".join(part.encode() + b"\x1e" for part in parts)


def stops(parts):
    """Bytes at which a prefix can end: whole blocks and whole parts."""
    ends, at = set(), 0
    for part in parts:
        at += len(part.encode()) + 1
        ends.add(at)
    return sorted(ends | set(range(BLOCK_BYTES, at + 1, BLOCK_BYTES)))


def by_definition(calls):
    whole = [(stage, request, text(parts)) for stage, request, parts in calls]
    found = []
    for (stage, request, parts), (_, _, mine) in zip(calls, whole, strict=True):
        of_stage = {r for s, r, _ in whole if s == stage}
        reached = [0, 0, 0, 0]
        for end in stops(parts):
            same = [(s, r) for s, r, other in whole if other[:end] == mine[:end]]
            of = {r for s, r in same if s == stage}
            is_static = len(of_stage) >= 2 and len(of) >= 0.9 * len(of_stage)
            flags = (is_static, len({r for _, r in same}) >= 2, sum(r == request for _, r in same) >= 2, True)
            reached = [max(at, end // 4) if flag else at for at, flag in zip(reached, flags, strict=True)]
        ends = [max(reached[: k + 1]) for k in range(4)]
        found.append([ends[0], *(b - a for a, b in pairwise(ends))])
    return found


@pytest.mark.parametrize("seed", range(12))
def test_labels_are_those_of_the_definition(seed):
    rng = random.Random(seed)
    heads = ["system " * rng.choice([3, 90, 200]), "tools " * 120]
    own = {f"r{i}": f"question {i} " * rng.choice([2, 60, 150]) for i in range(rng.choice([1, 4, 12]))}
    calls = []
    for _ in range(40):
        stage, request = rng.choice("abc"), rng.choice(list(own))
        parts = [heads[stage == "b"] if rng.random() < 0.95 else "another", own[request]]
        parts += [f"turn {k} " * 40 for k in range(rng.randrange(4))]
        rng.random() < 0.2 and parts.reverse()
        calls.append((stage, request, parts))
    tree = PromptTree()
    for stage, request, parts in calls:
        tree.add(stage, request, shape_of(parts, KEY))
    assert tree.labels().tolist() == by_definition(calls)
    for n, (stage, (count, tokens)) in enumerate(tree.by_stage().items()):
        mine = [row for (s, _, _), row in zip(calls, tree.labels().tolist(), strict=True) if s == stage]
        assert count == len(mine) > 0, n
        mean = [sum(column) / count for column in zip(*mine, strict=True)]
        assert astuple(tokens) == pytest.approx(mean, abs=0.06)


@pytest.mark.parametrize("seed", range(6))
def test_the_longest_match_is_the_longest_common_prefix(seed):
    rng = random.Random(seed)
    prompts = [[w * rng.choice([1, 70, 300]) for w in rng.choices(("alpha ", "beta ", "gamma "), k=3)] for _ in range(30)]
    tree = PromptTree()
    for n, parts in enumerate(prompts):
        pairs = [
            max((end // 4 for end in stops(parts) if text(parts)[:end] == text(other)[:end]), default=0)
            for other in prompts[:n]
        ]
        shape = shape_of(parts, KEY)
        assert [common_tokens(shape, shape_of(other, KEY)) for other in prompts[:n]] == pairs
        assert tree.longest_match(shape) == max(pairs, default=0)
        tree.add("s", str(n), shape)
    assert len(tree) == len(prompts)


def test_a_request_alone_has_no_static_part_and_a_prompt_may_be_empty():
    tree = PromptTree()
    assert tree.labels().tolist() == []
    tree.add("s", "r", shape_of([], KEY))
    tree.add("s", "r", shape_of(["word " * 200], KEY))
    tree.add("s", "r", shape_of(["word " * 200], KEY))
    assert tree.labels().tolist() == [[0, 0, 0, 0], [0, 0, 250, 0], [0, 0, 250, 0]]


def test_shapes_of_another_key_match_nothing():
    tree = PromptTree()
    tree.add("s", "r", shape_of(["word " * 900], KEY))
    assert tree.longest_match(shape_of(["word " * 900], b"another key")) == 0


def test_a_hundred_thousand_calls_are_small():
    """2,000 static and 2,000 request tokens, 1,000 requests, 4 stages, and answers that are the call's own."""
    import sys

    tree, n_calls = PromptTree(), 2_000
    heads = {stage: f"stage {stage} " * 800 for stage in "abcd"}
    for n in range(n_calls):
        stage, request = "abcd"[n % 4], str(n * 7919 % (n_calls // 100))
        tree.add(stage, request, shape_of([heads[stage], f"request {request} " * 700, f"own {n} " * 30], KEY))
    columns = [value for value in vars(tree).values() if not isinstance(value, (dict, tuple))]
    held = sum(map(sys.getsizeof, (*columns, *tree._calls, tree._child))) + 64 * len(tree._child)
    assert held * 100_000 / n_calls < 64 * 2**20


def test_known_tokens_end_at_the_first_prefix_that_is_not_known():
    assert known_tokens([1, 2, 3, 4], [10, 20, 30, 40], {1, 2, 4}) == 20
    assert known_tokens([1], [10], ()) == known_tokens([], [], {1}) == 0
