"""Equal calls across processes: both sides of the sockets, and a side that is gone."""

from contextlib import contextmanager

import pytest

from vinelm.backends.remote.equal_calls import EqualCalls
from vinelm.profiler.isolation.equal_calls_proxy import EqualCallsProxy, ProxiedEqualCalls

LONG = "x" * 3_000_000
"""More than a socket's buffer holds."""


class Kept(dict):
    """What is kept of calls."""

    find = dict.get

    def keep(self, digest, said):
        self[digest] = said


@pytest.fixture
def world():
    """What is kept, two children, and the units that wait."""
    kept, waiting = Kept(), []

    @contextmanager
    def noted(unit):
        waiting.append(unit)
        yield
        waiting.remove(unit)

    proxy = EqualCallsProxy(EqualCalls(kept), noted)
    yield kept, [ProxiedEqualCalls(proxy.theirs, unit, (), has_recorded=False) for unit in (1, 2)], waiting
    proxy.close()


def test_a_call_under_way_in_another_process_is_joined_and_kept_before_its_price_is_settled(world):
    kept, (one, two), waiting = world
    assert one.ask("d", leads=False).result(5) is None
    assert one.ask("d", leads=True).result(5) is None, "it is to make the call"
    other = two.ask("d", leads=True)
    assert not other.done()
    one.end("d", LONG)
    assert kept == {"d": LONG}
    assert other.result(5) == LONG
    assert two.ask("d", leads=False).result(5) == LONG
    assert waiting == []


def test_a_child_that_dies_leaves_its_call_to_the_next_one(world):
    kept, (one, two), _ = world
    assert one.ask("d", leads=True).result(5) is None
    other = two.ask("d", leads=True)
    one._led.pop("d").close()  # as the kernel does
    assert other.result(5) is None, "it is to make the call now"
    two.end("d", "answer")
    assert kept == {"d": "answer"}


def test_a_call_that_failed_is_not_kept(world):
    kept, (one, two), _ = world
    assert one.ask("d", leads=True).result(5) is None
    one.end("d", None)
    assert kept == {}
    assert two.ask("d", leads=True).result(5) is None


def test_what_is_recorded_is_found_and_counted():
    equal = EqualCalls(Kept(a="said"), has_recorded=True)
    proxy = EqualCallsProxy(equal, None)
    child = ProxiedEqualCalls(proxy.theirs, 1, (), has_recorded=True)
    assert [child.is_recorded(digest) for digest in "ab"] == [True, False]
    assert equal.recorded_hits == 1
    proxy.close()
