"""Marks are set where the reads that were counted are worth a write, and a call waits for the one that writes its prefix."""

import datetime
import json
from types import SimpleNamespace

import pytest

from vinelm.catalog import Model, Price
from vinelm.clock import VirtualClock
from vinelm.prompts.cache_points import MOST_POINTS, CachePoints, PromptCall, Reuse
from vinelm.prompts.shape import Point, Shape, shape_of

CLAUDE = Price(input=3, output=15, cached=0.3, cache_write=3.75, source="t", as_of=datetime.date(2026, 1, 1))


def model(name="sonnet", mode="auto", price=CLAUDE):
    return Model(name=name, provider="anthropic", model_id=name, engine="e", price=price, cache_points=mode)


@pytest.fixture
def world():
    return SimpleNamespace(clock=VirtualClock(), reuse=Reuse())


def cache(world, entry=None, *, takes_marks=True):
    return CachePoints(entry or model(), takes_marks=takes_marks, reuse=world.reuse, clock=world.clock)


def prompt(*parts, stage="answer", takes_marks=True, may_wait=True):
    """Parts are (text, tokens)."""
    shape = shape_of([f"{text} " * (tokens * 4 // (len(text) + 1) + 1) for text, tokens in parts], b"k")
    return PromptCall.of(stage, shape, takes_marks=takes_marks, may_wait=may_wait)


def sent(points, call):
    points.place(call)
    call.begun()
    points.end(call)
    return call.marks


def test_instructions_are_marked_from_the_first_call_and_requests_are_not(world):
    points = cache(world)
    for number in range(20):
        assert sent(points, prompt(("role", 2000), (f"request {number}", 1500))) == (0,)


def test_a_first_part_that_always_differs_is_marked_once(world):
    points, other = cache(world), cache(world, model("opus"))
    marks = [sent(points, prompt((f"day {number}", 2000), ("q", 100))) for number in range(20)]
    assert marks == [(0,)] + [()] * 19
    assert sent(other, prompt(("day 99", 2000), ("q", 100))) == ()  # what was counted elsewhere counts here, too


def test_what_one_model_was_told_is_marked_for_the_next(world):
    sent(cache(world), prompt(("role", 2000), ("request 0", 1500)))
    assert sent(cache(world, model("opus")), prompt(("role", 2000), ("request 0", 1500))) == (0,)


def test_requests_that_come_again_are_marked_where_it_pays(world):
    """A write costs 1.25 of a fresh token and a read 0.1: one read in three and a half pays for it."""
    points = cache(world)
    for number in range(60):
        for _ in range(3):
            marks = sent(points, prompt(("short role", 300), (f"request {number}", 2000)))
    assert marks == (1,)
    seldom = cache(world, model("other"))
    seldom._reuse = Reuse()
    for number in range(200):
        for _ in range(2 if number % 8 == 0 else 1):
            marks = sent(seldom, prompt(("short role", 300), (f"request {number}", 2000)))
    assert marks == ()


def test_static_marks_only_what_all_calls_share(world):
    points = cache(world, model(mode="static"))
    for number in range(60):
        for _ in range(3):
            marks = sent(points, prompt(("role", 2000), (f"request {number}", 2000)))
    assert marks == (0,)


def test_a_prefix_below_the_least_length_is_not_marked(world):
    points = cache(world)
    assert {sent(points, prompt(("role", 900), (f"request {n % 2}", 100))) for n in range(40)} == {()}


def test_what_has_expired_is_written_anew_and_costs_its_place(world):
    """Calls that come less often than the cache forgets gain nothing, so that nothing is marked after a while."""
    points = cache(world)
    marks = []
    for _ in range(10):
        marks.append(sent(points, prompt(("role", 4000))))
        world.clock.sleep(400)
    assert marks[0] == (0,)
    assert marks[-5:] == [()] * 5
    for _ in range(20):
        world.clock.sleep(20)
        marks.append(sent(points, prompt(("role", 4000))))
    assert marks[-1] == (0,)


def test_a_long_conversation_is_marked_at_its_end_and_where_others_leave_it(world):
    points = cache(world)
    for number in range(30):
        for turns in range(1, 9):
            said = [(f"turn {number}.{turn}", 600) for turn in range(turns)]
            marks = sent(points, prompt(("role", 2000), *said, stage="chat"))
    assert len(marks) == 4
    assert marks[-1] >= 7
    assert marks[0] == 0


def test_the_marks_of_a_very_long_prompt_are_those_of_its_parts():
    ends = tuple(Point(number, 100 * (number + 1)) for number in range(MOST_POINTS + 40))
    call = PromptCall.of("chat", Shape(shape_of([], b"").blocks, ends), takes_marks=True, may_wait=False)
    call.marks = (0, 7, 8, MOST_POINTS - 1)
    assert call.marked_parts == (0, 7, 48, MOST_POINTS + 39)
    assert [call.points[mark] for mark in call.marks] == [ends[part] for part in call.marked_parts]


@pytest.mark.parametrize("takes_marks", [True, False])
def test_the_second_call_waits_until_the_first_has_begun(world, takes_marks):
    points = cache(world, takes_marks=takes_marks)
    first, second = (prompt(("role", 2000), ("q", 10), takes_marks=takes_marks) for _ in range(2))
    assert points.leader(first) is None
    points.place(first)
    leader = points.leader(second)
    assert leader is not None
    assert not leader.done()
    first.begun()
    assert leader.done()
    assert points.leader(second) is None
    points.place(second)
    third = prompt(("role", 2000), ("q", 10), takes_marks=takes_marks)
    assert points.leader(third) is None  # nothing is cold


def test_nobody_waits_for_a_call_that_has_failed(world):
    points = cache(world)
    first, second = prompt(("role", 2000)), prompt(("role", 2000))
    points.place(first)
    leader = points.leader(second)
    points.end(first)
    assert leader.done()
    assert points.leader(second) is None


def test_a_served_call_and_one_that_would_gain_little_do_not_wait(world):
    points = cache(world, takes_marks=False)
    sent(points, prompt(("role", 20_000), takes_marks=False))
    points.place(prompt(("role", 20_000), ("q", 500), takes_marks=False))
    assert points.leader(prompt(("role", 20_000), ("q", 500), takes_marks=False)) is None
    points.place(prompt(("another", 2000), takes_marks=False))
    assert points.leader(prompt(("another", 2000), takes_marks=False, may_wait=False)) is None


def test_a_wait_is_as_long_as_a_call_at_most(world):
    points = cache(world)
    assert points.longest_wait_s == 10.0
    for number in range(30):
        call = prompt((f"role {number}", 2000))
        points.place(call)
        world.clock.sleep(2.0)
        points.end(call)
    assert points.longest_wait_s == pytest.approx(2.0, rel=0.05)


def test_what_no_cache_holds_is_forgotten(world):
    points = cache(world)
    for number in range(500):
        sent(points, prompt((f"role {number}", 1200)))
        world.clock.sleep(10)
    assert len(points._seen_s) < 100
    assert len(points._held_s) < 100
    assert not points._writing


def test_a_prompt_passes_a_process_boundary():
    call = prompt(("role", 2000), ("q", 10))
    twin = PromptCall.received(json.loads(json.dumps(call.to_send())))
    assert (twin.stage, twin.points, twin.may_wait) == (call.stage, call.points, call.may_wait)
