"""The order of calls that wait: by request while a cache keeps what requests go on from, else by prompt."""

import pytest

from vinelm.batches import call_order
from vinelm.batches.call_order import CallOrder
from vinelm.prompts.shape import shape_of

KEY = b"k" * 16
ROLES = {name: f"You are {name}. " * 100 for name in ("an expert", "a critic")}


def shape(*parts):
    return shape_of(parts, KEY)


def serve(order, position, prompts, cached):
    """Serve a request by itself; ``cached`` tells what the engine had of each prompt."""
    for depth, prompt in enumerate(prompts):
        call = order.waits(position, depth, prompt)
        order.sent(call)
        order.answered(call, cached(call))
    order.ended(position)


def going_on(number, calls=3):
    """The prompts of a request, each of which goes on from the one before."""
    return [shape(*(f"request {number}, turn {turn}. " * 100 for turn in range(one + 1))) for one in range(calls)]


def ranked(order, calls):
    return sorted(range(len(calls)), key=lambda at: order.rank(calls[at]))


@pytest.fixture
def waiting():
    """Calls of three requests: two experts and a critic, by arrival."""
    prompts = [(7, 1, "a critic"), (8, 0, "an expert"), (9, 0, "a critic")]

    def of(order):
        return [order.waits(position, depth, shape(ROLES[role], f"{position}")) for position, depth, role in prompts]

    return of


def test_a_request_is_finished_first_while_the_cache_keeps_what_it_left(waiting):
    order = CallOrder(20)
    for number in range(call_order.EVIDENCE):
        serve(order, number, going_on(number), lambda call: call.expected)
    assert not order.is_across
    assert ranked(order, waiting(order)) == [0, 1, 2]


@pytest.mark.parametrize("part", [0.5, 0.9])
def test_calls_go_by_their_prompts_once_the_cache_has_lost_what_requests_go_on_from(waiting, part):
    order = CallOrder(20)
    for number in range(call_order.EVIDENCE - 1):
        serve(order, number, going_on(number), lambda call: int(part * call.expected))
    assert not order.is_across, "too few have ended"
    calls, before = waiting(order), order.version
    assert ranked(order, calls) == [0, 1, 2]
    serve(order, 10, going_on(10), lambda call: 0)
    assert order.is_across
    assert order.version > before
    assert ranked(order, calls) == [0, 2, 1], "both critics follow each other"


@pytest.mark.parametrize("cached", [0, None])
def test_an_engine_that_tells_of_no_cache_has_lost_nothing(cached):
    order = CallOrder(20)
    for number in range(2 * call_order.EVIDENCE):
        serve(order, number, going_on(number), lambda call: cached)
    assert not order.is_across


def test_requests_that_never_go_on_from_their_own_prompts_need_no_hurry():
    order = CallOrder(20)
    for number in range(call_order.EVIDENCE):
        serve(order, number, [shape(text, f"{number}") for text in ROLES.values()], lambda call: call.expected)
    assert order.is_across


def test_when_all_requests_have_begun_those_that_are_behind_go_first():
    order = CallOrder(3)
    late, early, other = (order.waits(position, depth, shape("a")) for position, depth in ((0, 2), (1, 0), (2, 0)))
    assert ranked(order, [late, early, other]) == [0, 1, 2]
    order.sent(order.waits(0, 0, shape("a")))
    order.sent(early)
    assert order.version == 0
    order.sent(other)
    behind = order.waits(2, 1, shape("b"))
    assert order.version == 1
    assert ranked(order, [late, behind]) == [1, 0]


def test_requests_that_send_nothing_have_begun_as_well():
    order = CallOrder(2)
    order.sent(order.waits(0, 0, shape("a")))
    assert order.version == 0
    order.ended(1)
    assert order.version == 1


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(call_order, "KEPT", 50)
    order = CallOrder(100)
    for number in range(100):
        serve(order, number, going_on(number), lambda call: call.expected)
    assert len(order._first) <= 50
    assert len(order._sent) <= 50
    assert not order._under_way
