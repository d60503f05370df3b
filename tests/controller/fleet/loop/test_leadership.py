"""Of several loops one leads, and the orders of one that was replaced are refused, whatever was lost on the way."""

import uuid

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from vinelm.controller.fleet.loop.leadership import FENCE, LOCK, ORDERS, Leadership
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.errors import FleetUnreachable


@pytest.fixture
def link(redis_url, fleet_name):
    with_name = RedisLink(redis_url, fleet_name)
    yield with_name
    with_name.close()


def forget(link, *keys):
    link._redis.delete(*(link.prefix + key for key in keys))


def test_the_first_leads_and_the_other_waits(link):
    one, two = Leadership(link, "one"), Leadership(link, "two")
    assert one.stand()
    assert not two.stand()
    assert (two.leader, two.fence) == ("one", one.fence)
    assert one.stand()
    assert one.fence == 1  # the same election
    assert one.install({"all": b"{}"})
    assert one.install({"all": b"{}"})
    assert one.version == 2
    assert link.fields(ORDERS, "version", "fence", "all") == [b"2", b"1", b"{}"]


def test_who_was_replaced_is_refused_and_knows_it(link):
    one, two = Leadership(link, "one"), Leadership(link, "two")
    one.stand()
    one.install({"all": b"1"})
    forget(link, LOCK)  # it was away for too long
    assert two.stand()
    assert two.install({"all": b"2"})
    assert not one.install({"all": b"3"})
    assert not one.leads
    assert link.fields(ORDERS, "fence", "version", "all") == [b"2", b"2", b"2"]


def test_who_was_away_is_refused_even_if_nobody_leads_now(link):
    one, two = Leadership(link, "one"), Leadership(link, "two")
    one.stand()
    forget(link, LOCK)
    two.stand()
    two.resign()
    assert not one.install({"all": b"1"})
    assert one.stand()
    assert one.fence == 3


def test_who_never_led_installs_nothing(link):
    one, two = Leadership(link, "one"), Leadership(link, "two")
    one.stand()
    two.stand()  # and learns the number of the other
    assert not two.install({"all": b"2"})
    assert one.install({"all": b"1"})


def test_who_resigns_lets_the_next_in_at_once(link):
    one, two = Leadership(link, "one"), Leadership(link, "two")
    one.stand()
    two.resign()  # without effect: it does not lead
    assert not two.stand()
    one.resign()
    assert two.stand()


def test_an_empty_redis_takes_no_orders_before_an_election(link):
    one = Leadership(link, "one")
    one.stand()
    for _ in range(5):
        one.install({"all": b"1"})
    forget(link, LOCK, FENCE, ORDERS)
    assert not one.install({"all": b"2"})
    assert one.stand()
    assert one.fence == 2  # above what it remembers
    assert one.install({"all": b"3"})
    assert one.version == 6


def test_a_server_that_was_started_anew_from_an_old_file_begins_a_new_epoch(link):
    one, two = Leadership(link, "one"), Leadership(link, "two")
    one.stand()
    epoch = one._elected[0]
    link._redis.hset(f"{link.prefix}{FENCE}", "run", "another")  # what the file says
    assert not one.install({"all": b"1"})
    assert two.stand()  # whoever the file says that leads
    assert two._elected[0] != epoch
    assert not one.stand()


def test_orders_without_a_leader_are_forgotten(link):
    one = Leadership(link, "one")
    one.stand()
    one.install({"all": b"1"})
    link._redis.pexpire(f"{link.prefix}{ORDERS}", 1000)
    assert one.install({})  # confirms them
    assert one.version == 1
    assert link._redis.pttl(f"{link.prefix}{ORDERS}") > 20_000


class Lossy:
    """A link of which some answers are lost after the command was done."""

    def __init__(self, link):
        self._link, self.loses = link, False

    def run_script(self, *arguments):
        answer = self._link.run_script(*arguments)
        if self.loses:
            self.loses = False
            raise FleetUnreachable("lost")
        return answer


class TwoLeaders(RuleBasedStateMachine):
    """Loops that are elected, replaced, stopped in the middle and answered by nobody, on a Redis that may forget everything."""

    url = ""
    which = st.sampled_from([0, 1, 2])

    @initialize()
    def begin(self):
        self.link = RedisLink(self.url, f"test-{uuid.uuid4().hex[:12]}")
        self.links = [Lossy(self.link) for _ in range(3)]
        self.loops = [Leadership(link, f"loop{i}") for i, link in enumerate(self.links)]
        self.elected = None  # who was elected last, since Redis has forgotten
        self.installed = (0, 0)

    @rule(i=which, lost=st.booleans())
    def stand(self, i, lost):
        before = self.link.get(LOCK)
        self.links[i].loses = lost
        try:
            leads = self.loops[i].stand()
            assert leads == (before is None or before == self.loops[i].name.encode())
        except FleetUnreachable:
            pass
        if before is None:
            self.elected = i

    @rule(i=which, lost=st.booleans())
    def install(self, i, lost):
        self.links[i].loses = lost
        mine = b"by %d" % i
        before = self.link.fields(ORDERS, "all", "version")
        try:
            accepted = self.loops[i].install({"all": mine})
            assert not accepted or i == self.elected
        except FleetUnreachable:
            pass
        after = self.link.fields(ORDERS, "all", "version")
        if i != self.elected:
            assert after == before

    @rule()
    def time_passes(self):
        forget(self.link, LOCK)

    @precondition(lambda self: self.elected is not None)
    @rule(i=which)
    def resign(self, i):
        self.loops[i].resign()

    @rule()
    def redis_forgets(self):
        forget(self.link, LOCK, FENCE, ORDERS)
        self.elected, self.installed = None, (0, 0)

    @invariant()
    def fences_and_versions_only_grow(self):
        if hasattr(self, "link"):
            fence, version = self.link.fields(ORDERS, "fence", "version")
            now = (int(fence or 0), int(version or 0))
            assert now >= self.installed
            self.installed = now

    def teardown(self):
        if hasattr(self, "link"):
            forget(self.link, LOCK, FENCE, ORDERS)
            self.link.close()


def test_only_the_last_elected_is_obeyed(redis_url):
    machine = type("Machine", (TwoLeaders,), {"url": redis_url})
    run_state_machine_as_test(machine, settings=settings(max_examples=15, stateful_step_count=25, deadline=None))


@pytest.mark.long
def test_only_the_last_elected_is_obeyed_at_length(redis_url):
    machine = type("Machine", (TwoLeaders,), {"url": redis_url})
    run_state_machine_as_test(machine, settings=settings(max_examples=300, stateful_step_count=60, deadline=None))
