"""A call prefers the replica of a group that was sent the beginning of its prompt, while that is no busier than the others."""

import time
from contextlib import ExitStack

from vinelm.backends.limits import replica_gate
from vinelm.backends.limits.rate_limits import EngineRateLimiter, RateLimits
from vinelm.backends.limits.replica_gate import PromptPriority, ReplicaGate
from vinelm.prompts.radix import points_of
from vinelm.prompts.shape import shape_of


def gate(replicas=2, concurrency=None):
    limits = RateLimits(concurrency=concurrency)
    return ReplicaGate({f"e{n}": EngineRateLimiter(limits) for n in range(replicas)})


def prompt(*parts, priority=0.0):
    return PromptPriority(priority, *points_of(shape_of(parts, b"")))


def turn(name, n):
    return [f"Conversation {name}, step {step}: {'look again ' * 40}" for step in range(n + 1)]


def served(made, *parts, priority=0.0):
    with made.admit(1, time.sleep, prompt(*parts, priority=priority)) as permit:
        return permit.replica


def test_growing_conversations_stay_where_they_began():
    made, home = gate(), {}
    for n in range(6):
        for name in "abcdef":
            with ExitStack() as other:
                if name in "ace":  # something else is under way, so that the conversations spread
                    other.enter_context(made.admit(1, time.sleep))
                place = served(made, *turn(name, n))
            assert home.setdefault(name, place) == place
    assert set(home.values()) == {0, 1}


def test_a_warm_replica_without_room_is_not_waited_for():
    made = gate(concurrency=1)
    assert served(made, *turn("a", 0)) == 0
    with made.admit(1, time.sleep, prompt(*turn("a", 1))) as first:
        assert first.replica == 0
        assert served(made, *turn("a", 2)) == 1
    assert served(made, *turn("a", 3)) == 1, "it was sent more of this one"


def test_a_common_beginning_does_not_crowd_one_replica():
    made, common = gate(3), "instructions " * 400
    with ExitStack() as stack:
        places = [stack.enter_context(made.admit(1, time.sleep, prompt(common, f"question {n}"))).replica for n in range(30)]
    assert max(map(places.count, range(3))) <= 15
    assert min(map(places.count, range(3))) >= 5


def test_a_small_part_in_common_says_nothing():
    made = gate()
    assert served(made, "be brief", "x" * 4000) == 0
    with made.admit(1, time.sleep):  # on the first one
        assert served(made, "be brief", "y" * 4000) == 1


def test_a_pin_counts_more_and_a_failing_replica_is_the_last_resort():
    class Pinned(float):
        engine = "e1"

    made = gate()
    assert served(made, *turn("a", 0)) == 0
    assert served(made, *turn("a", 1), priority=Pinned(0.0)) == 1
    made._note_end(1, failed=True)
    assert served(made, *turn("a", 2)) == 0


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(replica_gate, "WARM_POINTS", 8)
    made = gate(1)
    for n in range(50):
        served(made, f"document {n} " * 300)
    assert len(made._replicas[0].sent) <= 8
