"""Whatever sequence of calls, deaths, losses and restarts: no limit a minute and no cap is passed. Redis is real."""

import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from kit.worlds.shared_dollars import Treasury
from kit.worlds.shared_rates import World

from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.errors import FleetUnreachable, JournalUnavailable

WHERE = {}
MANY = settings(max_examples=80, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))
FEW = settings(MANY, max_examples=4)


class AnswerLost:
    """A link that loses its next answer: Redis has done what it was told, and nobody knows."""

    def __init__(self, link):
        self._link, self.loses_next = link, False

    def __getattr__(self, name):
        return getattr(self._link, name)

    def run_script(self, *arguments):
        found = self._link.run_script(*arguments)
        if self.loses_next:
            self.loses_next = False
            raise FleetUnreachable("the answer is lost")
        return found


class FailingWrites:
    """A journal whose next write fails: before it reaches the disk, or after, when nobody learns of it."""

    def __init__(self, journal):
        self._journal, self.fails = journal, None

    def __getattr__(self, name):
        return getattr(self._journal, name)

    def hold(self, *arguments):
        return self._write(self._journal.hold, arguments)

    def give_back(self, *arguments):
        return self._write(self._journal.give_back, arguments)

    def _write(self, write, arguments):
        fails, self.fails = self.fails, None
        found = None if fails == "before" else write(*arguments)
        if fails is not None:
            raise JournalUnavailable("the journal is away")
        return found


class Dollars(RuleBasedStateMachine):
    """Trouble at any time: processes die, Redis forgets or is away, answers are lost, the journal fails, clocks leap."""

    CAP = 10.0
    which = st.integers(0, 7)
    usd = st.sampled_from([0.001, 0.1, 0.4, 1.0, 2.5, 6.0])

    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        self.treasury = Treasury(
            WHERE["url"], f"test-{uuid.uuid4().hex[:12]}", Path(self.folder.name) / "fleet.sqlite", acme=self.CAP
        )
        self.treasury.link = AnswerLost(self.treasury.link)
        for _ in range(3):
            self.another()

    def another(self):
        lease = self.treasury.spender().lease
        lease._journal = FailingWrites(lease._journal)

    def teardown(self):
        if hasattr(self, "treasury"):
            for spender in list(self.treasury.spenders):
                self.treasury.kill(spender)
            self.folder.cleanup()

    def spender(self, which):
        return self.treasury.spenders[which % len(self.treasury.spenders)]

    @rule(calls=st.lists(st.tuples(which, usd), min_size=1, max_size=8))
    def call(self, calls):
        for which, upper in calls:
            with suppress(FleetUnreachable):
                self.spender(which).call(upper)

    @rule(which=which, part=st.floats(0, 1))
    def pay(self, which, part):
        spender = self.spender(which)
        if spender.open:
            permit = spender.open[which % len(spender.open)]
            spender.pay(permit, part * permit.upper_usd)

    @rule(which=which)
    def round(self, which):
        with suppress(FleetUnreachable):
            self.spender(which).round()

    @rule(which=which)
    def kill_one_and_start_another(self, which):
        self.treasury.kill(self.spender(which))
        self.another()

    @precondition(lambda self: len(self.treasury.spenders) > 1)
    @rule(which=which)
    def end_in_good_order(self, which):
        spender = self.spender(which)
        if not spender.open:
            self.treasury.spenders.remove(spender)
            spender.lease.close(self.treasury.link)
            self.treasury.dead_nano += sum({**spender.lease._past, **spender.lease._held}.values())  # what it has spent

    @rule()
    def flush(self):
        self.treasury.flush()

    @rule()
    def come_back_with_an_older_file(self):
        link = self.treasury.link
        if link.hash("money"):
            link._redis.hset(link.prefix + "money", mapping={"run": "another", f"day:{self.treasury.day}:acme": 1})

    @rule()
    def lose_an_answer(self):
        self.treasury.link.loses_next = True

    @rule(which=which, when=st.sampled_from(["before", "after"]))
    def fail_a_write(self, which, when):
        self.spender(which).lease._journal.fails = when

    @rule(days=st.sampled_from([-30, -8, -1, 1, 1, 8, 30]))
    def turn_the_clock(self, days):
        self.treasury.turn_to(max(self.treasury.day + days, 1))

    @rule(which=which, usd=usd)
    def share_the_journal_with_another_redis(self, which, usd):
        """Its processes restore the sums under a new generation; those of the first have to learn that."""
        here = self.treasury.link
        self.treasury.link = RedisLink(WHERE["url"], f"{here.prefix[8:-2]}-b")
        self.another()
        guest = self.treasury.spenders[-1]
        guest.call(usd)
        self.treasury.kill(guest)
        self.treasury.link.close()
        self.treasury.link = here

    @rule(which=which, uppers=st.lists(usd, max_size=4))
    def call_without_redis(self, which, uppers):
        self.treasury.is_up = False
        for upper in uppers:
            self.spender(which).call(upper)
        self.treasury.is_up = True

    @rule()
    def nothing_is_lost(self):
        """Once everything answers, Redis counts what processes hold, have spent, or died with, and no more."""
        treasury = self.treasury
        treasury.link.loses_next = False
        for spender in treasury.spenders:
            spender.lease._journal.fails = None
            spender.round()
        tenants = [spender for spender in treasury.spenders if spender.lease.account("acme")]
        if treasury.day < treasury.latest or not tenants:
            return
        for spender in tenants:
            spender.lease._lease(treasury.link, spender.lease.account("acme"), 1, 1)  # each says what it holds
        if treasury.counted_usd() is not None and tenants[-1].lease._held:
            known = [{**s.lease._past, **s.lease._held} for s in tenants]
            held = sum(n for one in known for (_, day), n in one.items() if day == treasury.day)
            counted = round(treasury.counted_usd() * 1e9)
            assert held <= counted <= held + treasury.dead_nano

    @invariant()
    def no_more_than_the_cap(self):
        if hasattr(self, "treasury"):
            under_way = sum(permit.upper_usd for spender in self.treasury.spenders for permit in spender.open)
            assert self.treasury.spent_usd + under_way <= self.CAP * len(self.treasury.leased_days) + 1e-9


class Rates(RuleBasedStateMachine):
    """The same for calls a minute; the server's clock steps, too."""

    LIMIT = 9
    which = st.integers(0, 7)

    @initialize()
    def begin(self):
        self.world = World(WHERE["url"], f"test-{uuid.uuid4().hex[:12]}", requests=self.LIMIT)
        for _ in range(3):
            self.begin_another()
        self.world.run(3, step=0.5)

    def begin_another(self):
        worker = self.world.worker()
        worker.link = AnswerLost(worker.link)
        for _ in range(6):
            worker.call()
        worker.round()

    def worker(self, which):
        return self.world.workers[which % len(self.world.workers)]

    @rule(which=which, calls=st.integers(1, 20))
    def call(self, which, calls):
        for _ in range(calls):
            self.worker(which).call()

    @rule(seconds=st.sampled_from([0.5, 5, 20, 50]))
    def pass_time(self, seconds):
        self.world.run(seconds, step=0.5)

    @rule(which=which)
    def kill_one_and_start_another(self, which):
        self.world.kill(self.worker(which))
        self.begin_another()

    @precondition(lambda self: any(worker.lease.epoch for worker in self.world.workers))
    @rule()
    def flush(self):
        """Somebody lives who knows that there was a Redis before."""
        self.world.flush()
        self.world.run(0.5, step=0.5)

    @precondition(lambda self: any(worker.lease.epoch for worker in self.world.workers))
    @rule(key=st.sampled_from(["rates:east", "rates:east", "rates:clock"]))
    def evict_a_key(self, key):
        self.world.lose(key)
        self.world.run(0.5, step=0.5)

    @rule(which=which)
    def lose_an_answer(self, which):
        self.worker(which).link.loses_next = True

    @precondition(lambda self: all(worker.lease.epoch for worker in self.world.workers))
    @rule(seconds=st.sampled_from([1, 20, 70]))
    def lose_redis_for_a_while(self, seconds):
        self.world.is_up = False
        self.world.run(seconds, step=0.5)
        self.world.is_up = True

    @rule(which=which, part=st.sampled_from([None, 0.001, 0.2, 0.7, 1.0]))
    def order(self, which, part):
        self.worker(which).part = part

    @rule(step_s=st.sampled_from([-4000, -30, 30, 4000]))
    def step_the_clock(self, step_s):
        self.world.wall_offset_ms += step_s * 1000

    @invariant()
    def no_more_than_the_limit(self):
        if hasattr(self, "world"):
            assert self.world.most_in_a_minute()[0] <= self.LIMIT


@pytest.fixture(autouse=True)
def where(redis_url):
    WHERE["url"] = redis_url


def test_dollars():
    run_state_machine_as_test(Dollars, settings=FEW)


def test_rates():
    run_state_machine_as_test(Rates, settings=FEW)


@pytest.mark.long
def test_dollars_at_length():
    run_state_machine_as_test(Dollars, settings=MANY)


@pytest.mark.long
def test_rates_at_length():
    run_state_machine_as_test(Rates, settings=MANY)
