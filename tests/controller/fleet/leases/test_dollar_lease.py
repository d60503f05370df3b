"""A tenant's day is never overspent, whatever dies, and as little as possible is left lying about."""

import asyncio
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count

import pytest
from kit.servers.postgres_server import postgres_server, postgres_server_url, postgres_url  # noqa: F401
from kit.worlds.shared_dollars import DAY, Treasury

from vinelm.controller import FleetConfig
from vinelm.controller.fleet.leases.dollar_lease import GRANT
from vinelm.controller.fleet.leases.journal import SpendJournal, journal_at
from vinelm.controller.fleet.leases.tenant_account import PATIENCE_S, REFUSED_FOR_S, TenantAccount
from vinelm.errors import CallRefused, ConfigError, FleetUnreachable, JournalUnavailable
from vinelm.money.bound_guard import BoundGuard
from vinelm.money.guard_pair import GuardPair, aauthorized
from vinelm.money.spend_guard import SpendGuard
from vinelm.rows.observation import Usage


@pytest.fixture
def file_treasury(redis_url, fleet_name, tmp_path):
    return Treasury(redis_url, fleet_name, tmp_path / "fleet.sqlite", acme=10.0)


@pytest.fixture(params=["file", "PostgreSQL"])
def treasury(request, redis_url, fleet_name, tmp_path):
    journal = tmp_path / "fleet.sqlite" if request.param == "file" else request.getfixturevalue("postgres_url")
    made = Treasury(redis_url, fleet_name, journal, acme=10.0)
    yield made
    for spender in made.spenders:
        spender.lease._journal.close()


def test_a_slice_is_a_half_of_the_rest_by_process_and_at_least_the_call(treasury):
    one, two = treasury.spender(), treasury.spender()
    assert one.call(0.01)
    assert treasury.counted_usd() == pytest.approx(10.0 / 4)
    assert two.call(3.0)  # more than its slice would be
    assert treasury.counted_usd() == pytest.approx(2.5 + 3.0)


def test_together_they_spend_the_cap_and_no_more(treasury):
    spenders = [treasury.spender() for _ in range(3)]
    refused = 0
    while refused < 9:
        for spender in spenders:
            spender.round()
            permit = spender.call(0.05)
            refused = refused + 1 if permit is None else 0
            if permit is not None:
                spender.pay(permit, 0.05)
    assert 9.9 < treasury.spent_usd <= 10.0 + 1e-9  # each may be left with less than a call


def test_what_a_dead_process_had_leased_counts_as_spent(treasury):
    one, two = treasury.spender(), treasury.spender()
    one.call(0.01)
    held = treasury.counted_usd()
    treasury.kill(one)
    while two.call(0.5):
        pass
    assert treasury.counted_usd() <= 10.0
    assert two.lease.account("acme").reserved_usd <= 10.0 - held


def test_what_is_left_is_returned_by_a_process_that_ends(treasury):
    one = treasury.spender()
    one.pay(one.call(1.0), 0.25)
    one.lease.close(treasury.link)
    assert treasury.counted_usd() == pytest.approx(0.25, abs=1e-8)
    two = treasury.spender()
    assert two.call(9.7)


@pytest.mark.parametrize("restarts", ["flushed", "older file"])
def test_a_redis_that_forgot_learns_from_the_journal_first(treasury, restarts):
    one, two = treasury.spender(), treasury.spender()
    assert one.call(6.0)
    before = treasury.counted_usd()
    if restarts == "flushed":
        treasury.flush()
    else:  # it has a file of an earlier run, with an earlier sum
        treasury.link._redis.hset(treasury.link.prefix + "money", mapping={"run": "another", f"day:{DAY}:acme": 1})
    assert two.call(5.0) is None  # 6 of 10 are leased, whatever Redis remembers
    assert treasury.counted_usd() == pytest.approx(before)
    assert two.call(1.0)
    assert one.call(0.5)  # it learns of the new generation
    assert one.lease._generation == two.lease._generation == 2


def test_a_grant_that_was_on_its_way_while_sums_were_restored_is_void(file_treasury, monkeypatch):
    one, two = file_treasury.spender(), file_treasury.spender()
    assert one.call(0.1)
    write, sums = SpendJournal.hold, []

    def late(journal, *arguments):
        if not sums:  # Redis has granted; before that is written, Redis is lost and the sums are restored
            sums.append(file_treasury.counted_usd())
            file_treasury.flush()
            assert two.call(0.1)
        return write(journal, *arguments)

    monkeypatch.setattr(SpendJournal, "hold", late)
    assert one.call(5.0)  # what Redis had granted is not used: it is granted again, under the new generation
    assert len(sums) == 1
    monkeypatch.undo()
    one.round()
    with closing(sqlite3.connect(file_treasury.journal)) as journal:
        (sum_nano,) = journal.execute("SELECT sum(nano_usd) FROM fleet_grants").fetchone()
    assert sum_nano / 1e9 == pytest.approx(file_treasury.counted_usd())
    assert file_treasury.counted_usd() <= 10.0


def test_without_redis_a_process_spends_what_it_has_leased_and_no_more(treasury):
    one = treasury.spender()
    assert one.call(1.0)
    treasury.is_up = False
    spent = 0
    while one.call(0.5):
        spent += 1
    assert spent == 8  # of the 5 dollars of its slice
    with pytest.raises(CallRefused, match=r"tenant 'acme'.*\$10 for today.*Redis does not answer"):
        one.lease.account("acme").authorize(0.5)


def test_without_the_journal_no_dollars_are_leased(file_treasury, monkeypatch):
    monkeypatch.setattr("vinelm.controller.fleet.leases.journal.BUSY_TIMEOUT_S", 0.05)
    one = file_treasury.spender()
    assert one.call(0.1)
    other = sqlite3.connect(file_treasury.journal)
    other.execute("BEGIN IMMEDIATE")  # as a process that hangs would
    assert one.call(6.0) is None
    other.rollback()
    other.close()
    assert one.call(3.0)


def test_each_day_has_its_own_cap(treasury):
    one = treasury.spender()
    permit = one.call(10.0)
    assert one.call(0.1) is None
    one.pay(permit, 9.0)  # a dollar is left, of the day on which it was leased
    treasury.day += 1
    assert one.call(9.5)
    treasury.day -= 1
    assert treasury.counted_usd() == pytest.approx(9.0, abs=1e-6)


def test_calls_dearer_than_their_bounds_are_leased_for_afterwards(treasury):
    one = treasury.spender()
    one.pay(one.call(0.1), 7.0)
    one.round()
    assert treasury.counted_usd() >= 7.0
    assert one.call(4.0) is None


def test_tenants_are_apart_and_others_share_a_rule(redis_url, fleet_name, tmp_path):
    treasury = Treasury(redis_url, fleet_name, tmp_path / "fleet.sqlite", **{"acme": 1.0, "*": 2.0})
    one = treasury.spender()
    assert one.call(1.0)
    assert one.call(0.1) is None
    assert one.call(2.0, tenant="b")
    assert one.call(2.0, tenant="c")
    assert one.call(0.1, tenant="c") is None


def test_a_call_waits_for_its_lease_and_is_refused_at_once_where_the_cap_is_reached():
    wanted = threading.Event()
    account = TenantAccount("acme", 1.0, is_alone=lambda: False, wake=wanted.set)

    def background():
        for nano in (400_000_000, 600_000_000):  # the first does not suffice
            wanted.wait()
            wanted.clear()
            assert account.wanted_usd() == (pytest.approx(0.9 - account.free_usd()),) * 2
            account.add_lease(nano)
        wanted.wait()
        account.refuse()

    thread = threading.Thread(target=background)
    thread.start()
    permit = account.authorize(0.9)
    assert permit.upper_usd == 0.9
    with pytest.raises(CallRefused):
        account.authorize(0.5)
    thread.join()
    before = time.monotonic()
    with pytest.raises(CallRefused, match="other processes may hold the rest"):
        account.authorize(0.5)
    assert time.monotonic() - before < PATIENCE_S  # refused at once: it was asked for in vain just now
    account.authorize(0.1)
    assert account.wanted_usd() == (0.0, 0.0)


@pytest.mark.parametrize(
    ("is_alone", "why"), [(False, "no answer to the wish for more came in time"), (True, "the fleet's Redis does not answer")]
)
def test_a_call_that_nobody_answered_does_not_blame_the_other_processes(is_alone, why, monkeypatch):
    monkeypatch.setattr("vinelm.controller.fleet.leases.tenant_account.FIRST_S", 0.05)
    account = TenantAccount("acme", 1.0, is_alone=lambda: is_alone, wake=lambda: None)
    with pytest.raises(CallRefused, match=why):
        account.authorize(0.5)
    with pytest.raises(CallRefused, match=why):
        asyncio.run(account.aauthorize(0.5))


def test_a_journal_that_cannot_be_one_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="make the folder"):
        journal_at(tmp_path / "nowhere" / "fleet.sqlite")
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(ConfigError, match="cannot be the fleet's journal") as failed:
        journal_at(tmp_path / "text")
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize(
    "wrap", [lambda it: it, lambda it: GuardPair(it, SpendGuard(2.0)), lambda it: BoundGuard(it, 9.0, print)]
)
def test_a_coroutine_that_waits_for_its_lease_blocks_nobody(wrap):
    wanted = threading.Event()
    account = TenantAccount("acme", 1.0, is_alone=lambda: False, wake=wanted.set)
    guard = wrap(account)

    async def serve():
        call = asyncio.create_task(aauthorized(guard, 0.6))
        given_up = asyncio.create_task(aauthorized(guard, 0.3))
        await asyncio.to_thread(wanted.wait)
        assert not call.done()  # and this goes on meanwhile
        assert account.wanted_usd()[0] == pytest.approx(0.9)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert account.wanted_usd()[0] == pytest.approx(0.6)
        account.add_lease(600_000_000)
        permit = await call
        permit.settle(Usage(model="small", cost_usd=0.1, latency_s=1.0))
        account.refuse()
        with pytest.raises(CallRefused, match="other processes may hold the rest"):
            await aauthorized(guard, 0.6)

    asyncio.run(serve())
    assert account.free_usd() == pytest.approx(0.5)
    assert account.reserved_usd == 0.0


def test_a_guard_that_never_waits_is_asked_by_coroutines_too():
    guard = SpendGuard(1.0)
    assert asyncio.run(aauthorized(guard, 0.4)).upper_usd == 0.4
    with pytest.raises(CallRefused):
        asyncio.run(aauthorized(guard, 0.7))


@pytest.mark.long  # it starts a server twice
def test_a_server_that_comes_back_grants_again_and_has_lost_nothing(redis_url, fleet_name, postgres_server, monkeypatch):  # noqa: F811
    monkeypatch.setattr("vinelm.controller.fleet.leases.journal.RESTS_S", 0.0)
    treasury = Treasury(redis_url, fleet_name, postgres_server.url, acme=10.0)
    one = treasury.spender()
    assert one.call(4.0)
    postgres_server.stop()
    assert one.call(5.0) is None
    treasury.flush()  # Redis forgets while the journal is away
    assert one.call(5.0) is None
    postgres_server.start()
    assert one.call(7.0) is None  # 4 dollars are leased, and nobody has forgotten that
    assert one.call(5.0)
    assert treasury.counted_usd() <= 10.0
    one.lease._journal.close()


def test_processes_that_open_a_new_journal_at_once_get_one(postgres_url):  # noqa: F811
    with ThreadPoolExecutor(6) as pool:
        journals = list(pool.map(lambda _: journal_at(postgres_url), range(6)))
        assert all(pool.map(lambda named: named[1].hold(0, f"p{named[0]}", ("acme", 1), 5), enumerate(journals)))
    assert journals[0].restore() == (1, 1, [(f"p{i}", "acme", 1, 5) for i in range(6)], 0, 0)
    assert not journals[1].hold(0, "p", ("acme", 1), 5)  # of an earlier generation
    for made in journals:
        made.close()


def test_a_server_that_refuses_or_is_away_is_one_line_without_the_password():
    for url in ("postgresql://ann:geheim@127.0.0.1:1/traces", "postgresql://ann:geheim@[nowhere/traces"):
        with pytest.raises(ConfigError, match="PostgreSQL") as failed:
            journal_at(url)
        assert "geheim" not in str(failed.value)
        assert "\n" not in str(failed.value)
    assert "geheim" not in repr(FleetConfig(url="redis://h", daily_usd={"a": 1.0}, journal="postgresql://ann:geheim@h/d"))


def test_a_clock_that_leapt_and_came_back_grants_no_day_twice(treasury):
    """One grant 30 days ahead, then the true day again: whatever is restored, the true day keeps its grants."""
    one = treasury.spender()
    one.pay(one.call(10.0), 10.0)
    treasury.kill(one)
    for _ in range(3):
        treasury.day = DAY + 30
        ahead = treasury.spender()
        permit = ahead.call(0.5)
        if permit is not None:
            ahead.pay(permit, 0.5)
        treasury.flush()
        treasury.kill(ahead)
        treasury.day = DAY
        back = treasury.spender()
        assert back.call(1.0) is None
        with pytest.raises(CallRefused, match="the clock of Redis has gone back: it says 2024-10-04, and dollars were already"):
            back.lease.account("acme").authorize(1.0)
        treasury.flush()
        assert back.call(1.0) is None
        treasury.kill(back)
    with closing(journal_at(treasury.journal)) as journal:
        held = {grant.day: grant.nano_usd for grant in journal.restore().grants if grant.day == DAY}
    assert held == {DAY: 10_000_000_000}


def test_after_a_leap_and_back_a_day_has_its_cap_less_what_was_granted_ahead(treasury):
    """Nobody waits for thirty days. What was granted ahead was spent today, and counts on each day until then."""
    one = treasury.spender()
    one.pay(one.call(4.0), 4.0)
    one.lease.close(treasury.link)
    treasury.kill(one)
    treasury.turn_to(DAY + 30)
    ahead = treasury.spender()
    ahead.pay(ahead.call(2.0), 2.0)
    ahead.lease.close(treasury.link)
    treasury.kill(ahead)
    for days in range(5):
        treasury.turn_to(DAY + days)
        treasury.flush()
        spender = treasury.spender()
        most = 10.0 - 2.0 - (4.0 if days == 0 else 0.0)
        assert spender.call(most + 0.01) is None
        spender.pay(spender.call(most - 0.01), most - 0.01)
        assert spender.call(0.1) is None
        treasury.kill(spender)
    treasury.turn_to(DAY + 31)  # and when that is over all is as ever, but for the day before it
    spender = treasury.spender()
    assert spender.call(2.1) is None
    assert spender.call(1.9)
    treasury.kill(spender)
    treasury.turn_to(DAY + 32)
    treasury.flush()
    assert treasury.spender().call(10.0)


@pytest.mark.parametrize("flushes", [False, True])
def test_a_clock_that_is_set_back_by_mistake_grants_no_day_twice(treasury, flushes):
    """The day was the later one all the time: it has its cap once, whatever the clock says in between."""
    one = treasury.spender()
    one.pay(one.call(3.0), 3.0)
    treasury.kill(one)
    treasury.turn_to(DAY + 2)
    two = treasury.spender()
    two.pay(two.call(5.0), 5.0)
    treasury.kill(two)
    spent_usd = 5.0
    for day in (DAY, DAY + 2, DAY + 1, DAY + 2):
        treasury.turn_to(day)
        if flushes:
            treasury.flush()
        spender = treasury.spender()
        while (permit := spender.call(0.5)) is not None:
            spender.pay(permit, 0.5)
            spent_usd += 0.5
        treasury.kill(spender)
    assert spent_usd <= 10.0


def test_what_a_process_spent_of_a_day_counts_when_the_clock_comes_back_to_it(treasury):
    """Of one that lives through a step of a day forth and back: it gives back what it has not spent, and no more."""
    one = treasury.spender()
    one.pay(one.call(6.0), 6.0)
    for _ in range(3):
        treasury.turn_to(DAY + 1)
        permit = one.call(1.0)
        if permit is not None:
            one.pay(permit, 1.0)
        treasury.turn_to(DAY)
        permit = one.call(0.5)
        if permit is not None:
            one.pay(permit, 0.5)
    held = treasury.link.hash("money")
    spent = {day: int(held[f"day:{DAY + day}:acme"]) / 1e9 for day in (0, 1)}
    assert spent[0] <= 10.0
    assert spent[1] <= 10.0
    assert sum(spent.values()) >= treasury.spent_usd - 1e-6
    assert spent[0] >= 6.0  # what was spent stays counted


def test_what_was_leased_for_a_day_may_be_spent_when_the_clock_has_gone_back(file_treasury):
    """It is that day's money, whatever the clock says when it is spent; no other day is begun for it."""
    one, two = file_treasury.spender(), file_treasury.spender()
    assert two.call(6.0)
    file_treasury.turn_to(DAY + 1)
    two.round()  # its last slice is used up: leased for the day that is there now
    file_treasury.turn_to(DAY - 29)
    assert two.call(2.5)
    assert file_treasury.leased_days == {DAY, DAY + 1}
    assert one.call(2.5) is None  # what is granted for these days counts for that one as well
    assert file_treasury.link.hash("money")[f"day:{DAY + 1}:acme"] == b"%d" % sum(two.lease._held.values())


def test_a_clock_a_little_behind_midnight_goes_on_with_the_last_day(redis_url, fleet_name, tmp_path, monkeypatch):
    """Seconds before midnight after seconds past it: the same day, whose cap is spent."""
    treasury = Treasury(redis_url, fleet_name, tmp_path / "fleet.sqlite", acme=10.0)
    one = treasury.spender()
    treasury.day += 1
    one.pay(one.call(10.0), 10.0)
    script = "vinelm.controller.fleet.leases.dollar_lease.GRANT"
    monkeypatch.setattr(script, GRANT.replace("now = day * 86400", "now = day * 86400 + 86399"))
    treasury.day -= 1
    assert one.call(0.1) is None
    two = treasury.spender()
    assert two.call(0.1) is None


def refusal(spender, upper_usd=0.1):
    with pytest.raises(CallRefused) as refused:
        spender.lease.account("acme").authorize(upper_usd)
    return str(refused.value)


def test_clocks_that_disagree_grant_nothing_and_say_so(redis_url, fleet_name, tmp_path):
    treasury = Treasury(redis_url, fleet_name, tmp_path / "fleet.sqlite", acme=10.0)
    one = treasury.spender()
    one.lease._wake, one.lease._is_alone = one.round, lambda: False
    treasury.day = None  # the server's own clock
    one.lease._clock = lambda: time.time() + 7200  # the first call that waits is told, too, not only those after it
    assert "the clocks of Redis and of this machine are more than an hour apart" in refusal(one)
    one.lease._clock = time.time
    time.sleep(REFUSED_FOR_S)
    assert one.call(0.1)


def test_a_leap_ahead_beyond_what_the_process_has_lived_grants_nothing(file_treasury):
    one = file_treasury.spender()
    assert one.call(0.1)
    file_treasury.day += 9
    assert one.call(6.0) is None
    assert "has leapt ahead to" in refusal(one, 6.0)
    file_treasury.day -= 9
    assert one.call(4.0)  # nothing was granted for that day, so that the clock may come back
    file_treasury.day += 1
    assert one.call(8.0)


class FailingJournal:
    """A journal whose writes fail: before they reach the disk, or after, when nobody learns of it."""

    def __init__(self, journal, *, is_written):
        self._journal, self._is_written = journal, is_written

    def __getattr__(self, name):
        return getattr(self._journal, name)

    def hold(self, *arguments):
        if self._is_written:
            self._journal.hold(*arguments)
        raise JournalUnavailable("the commit took too long")

    def give_back(self, *arguments):
        if self._is_written:
            self._journal.give_back(*arguments)
        raise JournalUnavailable("the commit took too long")


@pytest.mark.parametrize("is_written", [False, True])
def test_a_journal_that_fails_costs_no_dollars(treasury, is_written):
    one, two = treasury.spender(), treasury.spender()
    journal = one.lease._journal
    for _ in range(5):
        one.lease._journal = FailingJournal(journal, is_written=is_written)
        assert one.call(6.0) is None
        assert "the commit took too long" in refusal(one, 6.0)
        assert treasury.counted_usd() == 0.0
        one.lease._journal = journal
        one.round()
    assert two.call(9.9)
    treasury.flush()
    assert one.call(0.2) is None  # restored from the journal: 9.9 are held, and nothing of what failed
    assert one.call(0.05)


def test_a_grant_whose_answer_is_lost_returns_to_the_cap(treasury):
    one = treasury.spender()
    run_script = treasury.link.run_script

    def lost(*arguments):
        run_script(*arguments)
        raise FleetUnreachable("the answer is lost")

    assert one.call(0.1)
    before = treasury.counted_usd()
    treasury.link.run_script = lost
    with pytest.raises(FleetUnreachable):
        one.call(8.0)
    treasury.link.run_script = run_script
    assert treasury.counted_usd() > before
    assert one.call(8.0)


def test_a_journal_belongs_to_one_fleet(treasury, redis_url):
    one = treasury.spender()
    assert one.call(1.0)
    journal_at(treasury.journal).close()
    with pytest.raises(
        ConfigError, match="is the journal of the fleet 'default', and this one is 'other': give each fleet its own"
    ):
        journal_at(treasury.journal, "other")


def test_a_process_of_an_earlier_generation_reads_the_journal_again_and_goes_on(treasury, redis_url):
    """Another Redis with the same journal, or this one back from an older state: sums are restored, and leases go on."""
    one = treasury.spender()
    assert one.call(1.0)
    elsewhere = Treasury(redis_url, f"{treasury.link.prefix[8:-2]}-b", treasury.journal, acme=10.0)
    elsewhere.numbers = count(100)  # names of processes are unique
    two = elsewhere.spender()
    held = treasury.counted_usd()
    assert two.call(10.0) is None
    assert two.call(9.0 - held)  # what the first holds counts here, too
    assert one.call(held + 0.5) is None
    assert one.call(0.5)  # and the other way round
    state = treasury.link.hash("money")
    assert two.call(0.1)
    treasury.link._redis.hset(treasury.link.prefix + "money", mapping=state)
    three = treasury.spender()
    assert three.call(0.2)
    total = one.lease.account("acme").reserved_usd + two.lease.account("acme").reserved_usd
    assert total + three.lease.account("acme").reserved_usd <= 10.0
    two.lease._journal.close()
