"""The order of calls to an engine whose slots share nothing, held against the slots of an engine that is written down here."""

import random

import pytest

from vinelm.batches.call_order import CallOrder
from vinelm.batches.slot_order import EVIDENCE_CALLS, SlotOrder
from vinelm.prompts.shape import shape_of

ROLES = ("You answer questions. " * 12, "You check answers. " * 12)
DOCUMENTS = [f"Document {n}. " * 120 for n in range(10)]
QUESTIONS = 6


class Engine:
    """Slots that hold the last prompt each, and what a common cache holds."""

    def __init__(self, slots, *, common=False):
        self.slots, self.common, self.computed, self.seen = [[] for _ in range(slots)], common, 0, set()
        self.busy, self.is_contrary = {}, False

    def sends(self, call, at=None):
        free = [one for one in range(len(self.slots)) if one not in self.busy.values()]
        assert at is None or at in free
        if at is None:
            choose = min if self.is_contrary else max
            at = choose(free, key=lambda one: (self.shared(self.slots[one], call), -one))
        cached = self.shared(self.slots[at], call)
        if self.common:
            cached = max(cached, self.shared(self.seen, call))
        self.slots[at] = list(call.points)
        self.busy[id(call)] = at
        self.computed += call.tokens[-1] - cached
        return cached / call.tokens[-1]

    def ends(self, call):
        del self.busy[id(call)]
        self.seen.update(call.points)

    @staticmethod
    def shared(points, call):
        known, tokens = set(points), 0
        for point, here in zip(call.points, call.tokens, strict=True):
            if point not in known:
                break
            tokens = here
        return tokens


def requests(seed=1):
    rows = [(document, question) for document in DOCUMENTS for question in range(QUESTIONS)]
    random.Random(seed).shuffle(rows)
    return rows


def prompt(stage, document, question):
    return shape_of([ROLES[stage], document, f"Question {question}?{' Proposed: x' * stage}"], b"")


def computed(slots, rows, workers, *, order=None, common=False, seed=0, contrary=False, names=False):
    """Tokens that the engine computes for drafts and checks; ``order`` None sends what comes first.

    A ``contrary`` engine takes the slot that has least of a prompt; with ``names`` each call says which one to take.
    """
    engine, calls, rng = Engine(slots, common=common), CallOrder(len(rows)), random.Random(seed)
    engine.is_contrary = contrary
    waiting, running, left, came = [], [], list(reversed(list(enumerate(rows)))), 0

    def begins():
        position, row = left.pop()
        waits(position, 0, row)

    def waits(position, stage, row):
        nonlocal came
        came += 1
        waiting.append((came, calls.waits(position, stage, prompt(stage, *row), order), row))

    while left and len(waiting) < workers:
        begins()
    while waiting or running:
        while len(running) < slots and (may := [one for one in waiting if not calls.is_held(one[1])]):
            chosen = min(may, key=lambda one: (calls.rank(one[1]), one[0]) if order is not None else one[0])
            waiting.remove(chosen)
            calls.sent(chosen[1])
            running.append((*chosen, engine.sends(chosen[1], order.slot_of(chosen[1]) if names else None)))
        assert running, "a call waits for one under way"
        ended = running.pop(rng.randrange(len(running)))
        engine.ends(ended[1])
        calls.over(ended[1], ended[3])
        calls.answered(ended[1], round(ended[3] * ended[1].tokens[-1]))
        if ended[1].depth == 0:
            waits(ended[1].position, 1, ended[2])
        else:
            calls.ended(ended[1].position)
            if left:
                begins()
    return engine.computed


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_it_is_near_the_best_order_and_far_from_arrival(slots):
    rows = requests()
    workers = 8 * max(slots, 4)
    ours = computed(slots, sorted(rows), workers, order=SlotOrder(slots, workers))
    arrival = computed(slots, rows, slots)
    by_hand = computed(slots, sorted(rows), slots)
    longest = max(shape.tokens for shape in (prompt(0, document, 0) for document in DOCUMENTS))
    least = 2 * len(DOCUMENTS) * longest  # each document once for drafts and once for checks
    assert ours < 1.3 * least
    assert ours < 0.5 * min(arrival, by_hand)


def test_a_call_that_names_its_slot_gets_what_the_slot_has():
    rows, workers = sorted(requests()), 32
    guessed, named = (
        computed(4, rows, workers, order=SlotOrder(4, workers), contrary=True, names=names) for names in (False, True)
    )
    assert named == computed(4, rows, workers, order=SlotOrder(4, workers))
    assert guessed > 1.3 * named


def test_no_slot_is_named_where_the_order_is_of_no_use():
    order = SlotOrder(2)
    call = CallOrder(1).waits(0, 0, prompt(0, *requests()[0]), order)
    order.sent(call)
    assert order.slot_of(call) in (0, 1)
    order.is_used = False
    assert order.slot_of(call) is None


def test_what_shares_nothing_costs_what_it_costs_by_arrival():
    rows = [(f"Document of its own {n}. " * 120, 0) for n in range(30)]
    assert computed(4, rows, 32, order=SlotOrder(4)) <= 1.02 * computed(4, rows, 4)


def test_what_all_calls_begin_with_is_computed_by_each_slot_and_no_slot_stays_free():
    order, calls = SlotOrder(4, 32), CallOrder(100)
    shared = "You answer questions. " * 200
    waiting = [calls.waits(n, 0, shape_of([shared, f"question {n}"], b""), order) for n in range(32)]
    for n in range(4):
        assert not calls.is_held(waiting[n])
        calls.sent(waiting[n])


def test_a_few_alike_wait_for_the_slot_of_the_first_and_others_pass_them():
    order, calls = SlotOrder(2, 16), CallOrder(100)
    first, alike, other = (calls.waits(n, 0, prompt(0, DOCUMENTS[document], n), order) for n, document in enumerate((0, 0, 1)))
    calls.sent(first)
    assert calls.is_held(alike)
    assert not calls.is_held(other)
    calls.over(first, 0.0)
    assert not calls.is_held(alike)
    assert min((alike, other), key=calls.rank) is alike
    calls.sent(alike)
    late = calls.waits(9, 0, prompt(0, DOCUMENTS[0], 9), order)
    assert calls.is_held(late)
    calls.ended(alike.position, [order])  # and nobody has said what became of its call
    assert not calls.is_held(late)


def test_of_the_calls_that_a_slot_is_warm_for_those_of_its_stage_go_first():
    order, calls = SlotOrder(1, 8), CallOrder(100)
    table = "A table. " * 300

    def waits(position, stage):
        return calls.waits(position, stage, shape_of([table, f"{ROLES[stage]}\nquestion {position}"], b""), order)

    first, check, draft = waits(0, 0), waits(1, 1), waits(2, 0)
    calls.sent(first)
    calls.over(first, 0.0)
    assert min((check, draft), key=calls.rank) is draft


@pytest.mark.parametrize("first_free", [0, 1])
def test_a_new_prompt_takes_the_slot_that_was_free_for_longest_whatever_little_it_shares(first_free):
    order, calls = SlotOrder(2), CallOrder(100)
    document = "Document. " * 400
    held = [calls.waits(n, 0, shape_of([ROLES[n], f"{n} {document}", "q"], b""), order) for n in range(2)]
    for call in held:
        calls.sent(call)
    for n in (first_free, 1 - first_free):
        calls.over(held[n], 0.0)
    new = calls.waits(5, 0, shape_of([ROLES[1 - first_free], f"new {document}", "q"], b""), order)
    assert 0 < order._held(new)[0] < 0.1 * new.tokens[-1]
    calls.sent(new)
    warm = [order._held(call)[0] > 500 for call in held]
    assert warm == [first_free == 1, first_free == 0]


def test_an_engine_with_a_common_cache_is_found_out():
    order, rows = SlotOrder(4), requests()
    for seed in range(3):
        computed(4, rows, 5, order=order, common=True, seed=seed)
    assert not order.is_used


def test_an_engine_that_keeps_nothing_is_not_ordered_by_slots():
    order = SlotOrder(1)
    calls = CallOrder(1000)
    for n in range(EVIDENCE_CALLS + 1):
        assert order.is_used == (n < EVIDENCE_CALLS)
        call = calls.waits(n, 0, prompt(0, DOCUMENTS[0], n), order)
        calls.sent(call)
        calls.over(call, 0.0)


def test_counters_that_nobody_reports_say_nothing():
    order, calls = SlotOrder(1), CallOrder(1000)
    for n in range(2 * EVIDENCE_CALLS):
        call = calls.waits(n, 0, prompt(0, DOCUMENTS[0], n), order)
        calls.sent(call)
        calls.over(call, None)
    assert order.is_used


def test_more_calls_than_slots_change_nothing_that_is_known():
    order, calls = SlotOrder(1), CallOrder(10)
    first, second = (calls.waits(n, 0, prompt(0, DOCUMENTS[n], 0), order) for n in range(2))
    calls.sent(first)
    calls.sent(second)
    calls.over(second, 0.0)
    calls.over(first, 0.0)
    third = calls.waits(2, 0, prompt(0, DOCUMENTS[0], 1), order)
    assert order._held(third)[0] > 100


class Counted(int):
    """A digest that counts how often it is looked up."""

    looked_up = 0

    def __hash__(self):
        Counted.looked_up += 1
        return int.__hash__(self)


def test_a_rank_looks_a_prompt_up_once_whatever_the_number_of_slots():
    order, calls = SlotOrder(16), CallOrder(100)
    for n in range(16):
        calls.sent(calls.waits(n, 0, prompt(0, DOCUMENTS[0], n), order))
    waiting = calls.waits(20, 0, prompt(0, DOCUMENTS[0], 20), order)
    waiting.points = [Counted(point) for point in waiting.points]
    assert calls.rank(waiting)[0], "one with the same document is under way"
    assert 0 < Counted.looked_up <= 2 * len(waiting.points)
