"""The order of a batch: a walk of the radix tree of prompts, the branch that came first at first."""

import random
from itertools import pairwise

from vinelm.batches.order import depth_first
from vinelm.prompts.radix import common_tokens
from vinelm.prompts.shape import shape_of

KEY = b"k" * 16
ROLE = "You read reports and answer from them. " * 20


def shape(*parts):
    return shape_of(parts, KEY)


def random_prompts(seed, requests=60, documents=8):
    rng = random.Random(seed)
    reports = [f"report {number} " * rng.randrange(40, 400) for number in range(documents)]
    return [shape(ROLE, rng.choice(reports), f"question {rng.randrange(20)} " * 3) for _ in range(requests)]


def test_prompts_that_begin_alike_follow_each_other_and_the_first_to_come_is_first():
    a, b = "the report of a " * 90, "the report of b " * 90
    found = depth_first([shape(ROLE, report, question) for report in (b, a, "none") for question in "xy"][::2] * 2)
    assert found.places == [0, 3, 1, 4, 2, 5]
    assert found.groups == [0, 0, 1, 1, 2, 2]
    assert depth_first([shape("alone"), shape(ROLE, a), shape("also"), shape(ROLE, b)]).places == [0, 1, 3, 2]


def test_every_shared_prefix_is_met_once():
    for seed in range(20):
        shapes = random_prompts(seed)
        found = depth_first(shapes)
        assert sorted(found.places) == list(range(len(shapes)))
        seen, before = set(), ()
        for place in found.places:
            points = tuple(shapes[place].blocks)
            left = set(before) - set(points)
            assert not seen & set(points), "a prefix is met again after others came between"
            seen |= left
            before = points


def test_no_order_shares_more_with_the_one_before():
    rng = random.Random(1)
    for seed in range(20):
        shapes = random_prompts(seed)
        found = depth_first(shapes)
        assert found.shared == sum(common_tokens(shapes[a], shapes[b]) for a, b in pairwise(found.places))
        for _ in range(20):
            rng.shuffle(order := list(range(len(shapes))))
            assert found.shared >= sum(common_tokens(shapes[a], shapes[b]) for a, b in pairwise(order))
        assert found.tokens == sum(one.tokens for one in shapes)


def test_equal_prompts_keep_their_order_and_strangers_theirs():
    same = [shape(ROLE, "the same")] * 5
    assert depth_first(same).places == [0, 1, 2, 3, 4]
    assert depth_first([shape(f"{number} is alone") for number in range(5)]).groups == [0, 1, 2, 3, 4]


def test_nothing_and_prompts_without_text():
    assert depth_first([]) == ([], [], 0, 0)
    assert depth_first([shape(), shape("a"), shape()]).places in ([0, 2, 1], [0, 1, 2])
