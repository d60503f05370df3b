"""Classes of equal answers: the same for the same rows in any order."""

import random
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vinelm.errors import WorkflowError
from vinelm.rows.observation import Observation
from vinelm.signals import Signals
from vinelm.signals.classes import MOST_ANSWERS_COMPARED, answer_classes
from vinelm.signals.declaration import canonical, digest_of_text

DECLARED = Signals(agree=lambda one, other: one % 10 == other % 10, answer=("number",))


def row(request_id, prefix, answer=None, **changes):
    kept = {} if answer is None else {"answer": canonical(answer), "answer_digest": digest_of_text(canonical(answer))}
    fields = {"stage": "s", "success": None, "stopped": False, "cost_usd": 0.0, "latency_s": 0.0}
    return Observation(request_id=request_id, prefix=tuple(prefix), **(fields | kept | changes))


def test_classes_count_by_depth_and_then_by_prefix():
    rows = [row("q", "a", 3), row("q", "b", 4), row("q", "aa", 14), row("q", "ba", 5), row("q", "bb"), row("r", "a", 9)]
    of = {
        ("q", ("a",)): 0,
        ("q", ("b",)): 1,
        ("q", ("a", "a")): 1,
        ("q", ("b", "a")): 2,
        ("q", ("b", "b")): None,
        ("r", ("a",)): 0,
    }
    for some in permutations(rows):
        assert answer_classes(some, DECLARED).of == of


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.text("xyz", min_size=1, max_size=3), st.integers(0, 40)), unique_by=lambda c: c[:2]
    )
)
def test_rows_share_a_class_exactly_if_their_answers_agree(cells):
    rows = [row(*cell) for cell in cells]
    found = answer_classes(rows, DECLARED)
    for one_id, one_prefix, one in cells:
        for other_id, other_prefix, other in cells:
            mine, theirs = found.of[one_id, tuple(one_prefix)], found.of[other_id, tuple(other_prefix)]
            if one_id == other_id:
                assert (mine == theirs) == (one % 10 == other % 10)
    assert (found.intransitive, found.unknown) == (0, 0)
    random.Random(1).shuffle(rows)
    assert answer_classes(rows, DECLARED).of == found.of


def test_without_agree_equal_json_is_equal_even_where_only_digests_are_kept():
    rows = [row("q", "a", [1, 2]), row("q", "b", (1, 2)), row("q", "c", [2, 1])]
    kept = [row("q", one.prefix, answer_digest=one.answer_digest) for one in rows]
    for some in (rows, kept):
        assert list(answer_classes(some, Signals(answer=("x",))).of.values()) == [0, 0, 1]


def test_digests_alone_cannot_be_compared_by_agree():
    rows = [row("q", "a", 1), row("q", "b", answer_digest="d"), row("r", "a", 1)]
    found = answer_classes(rows, DECLARED)
    assert found.of == {("r", ("a",)): 0}
    assert found.unknown == 1


def test_nothing_declared_has_no_classes():
    rows = [row("q", "a", 1)]
    assert answer_classes(rows, Signals()).of == answer_classes(rows, Signals("status")).of == {("q", ("a",)): None}


def test_an_answer_that_disagrees_with_itself_is_none():
    declared = Signals(agree=lambda one, other: one == other > 0, answer=("x",))
    assert list(answer_classes([row("q", "a", -1), row("q", "b", 2), row("q", "c", -1)], declared).of.values()) == [
        None,
        0,
        None,
    ]


def test_each_pair_is_asked_once():
    asked = []

    def same(one, other):
        asked.append((one, other))
        return one == other

    rows = [row("q", (model, model), k % 3) for k, model in enumerate("abcdefghi")]
    answer_classes(rows, Signals(agree=same, answer=("x",)))
    assert sorted(asked) == sorted((one, other) for one in range(3) for other in range(3))


def test_an_agree_that_depends_on_the_order_names_the_rows():
    declared = Signals(agree=lambda one, other: one <= other, answer=("x",))
    with pytest.raises(
        WorkflowError, match=r"request 'q': it is True for the answers of a and a/b, and False for the same two"
    ):
        answer_classes([row("q", "a", 123454321), row("q", "ab", 123454322)], declared)


def test_pairs_that_contradict_the_classes_are_counted():
    near = Signals(agree=lambda one, other: abs(one - other) <= 1, answer=("x",))
    found = answer_classes([row("q", "a", 1), row("q", "b", 2), row("q", "c", 3)], near)
    assert list(found.of.values()) == [0, 0, 1]  # 3 is near 2, and the first of the class is 1
    assert (found.compared, found.intransitive) == (3, 1)
    many = answer_classes([row("q", (f"m{k}",), 5 * k) for k in range(50)], near)
    assert many.compared == MOST_ANSWERS_COMPARED * (MOST_ANSWERS_COMPARED - 1) // 2
