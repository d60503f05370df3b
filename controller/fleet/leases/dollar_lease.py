"""Leases dollars for the accounts of this process, and writes each lease into the journal before it is used."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from vinelm.controller.fleet.leases.journal import SpendJournal, TenantDay
from vinelm.controller.fleet.leases.tenant_account import NANO, TenantAccount
from vinelm.controller.fleet.member import Chore
from vinelm.controller.fleet.redis_link import RUN, RedisLink
from vinelm.errors import FleetUnreachable, JournalUnavailable

MONEY = "money"
OTHERS = "*"
"""The name under which ``daily_usd`` caps each tenant that it does not name."""
DAY_S = 86_400
LOW = 0.5
"""A new slice is asked for when less than this part of the last one is free."""

_LOG = logging.getLogger(__name__)

# -- the scripts: Redis knows the sums, the journal knows who was granted what ------------------------------------
# Each process says with every exchange what it holds. What Redis counts for it beyond that was granted and never used, because
# the answer was lost or the journal could not be written: it returns to the cap at once.

GRANTED, REFUSED, NOT_CURRENT, CLOCK_WENT_BACK, CLOCKS_DIFFER, CLOCK_LEAPT, CAME_LATE = 1, 0, -1, -2, -3, -4, -5
"""What :data:`GRANT` answers."""
CLOCK_BOUND_S = 3600
"""How far clocks may be from each other, and behind the last day of a grant, before nothing is granted."""

_KNOWN = f"""
{RUN}
local known = redis.call('HMGET', KEYS[1], 'run', 'generation')
"""
_IS_CURRENT = f"""
{_KNOWN}
local is_current = known[1] == run and known[2] == ARGV[1]
"""

_HELD = """
-- Counts what the process holds of a day as it says, unless a later exchange of it came first: then false.
local function holds(process, sequence, day, tenant, amount)
    local turn = 'turn:' .. process
    if tonumber(redis.call('HGET', KEYS[1], turn) or '0') >= sequence then
        return false
    end
    redis.call('HSET', KEYS[1], turn, sequence)
    local own = 'held:' .. day .. ':' .. #tenant .. ':' .. tenant .. ':' .. process
    local surplus = tonumber(redis.call('HGET', KEYS[1], own) or '0') - amount
    if surplus > 0 then
        redis.call('HINCRBY', KEYS[1], 'day:' .. day .. ':' .. tenant, string.format('%.0f', -surplus))
        redis.call('HINCRBY', KEYS[1], own, string.format('%.0f', -surplus))
    end
    return own
end
"""

GRANT = f"""
-- KEYS: the fleet's money. ARGV: generation, tenant, cap, wanted, processes that share (or
-- 1 / p, if this one may count on the part p), day ('' for the server's), process, its turn, the last day that it holds
-- dollars of, what it holds of that day, its clock in seconds ('' if not to be compared), the last
-- day that it takes for possible ('' if it cannot tell).
-- Amounts in billionths of a dollar. Returns: one of the codes above; the slice; the rest of the cap; the day; the last day.
{_IS_CURRENT}
{_HELD}
local now, day = tonumber(redis.call('TIME')[1]), tonumber(ARGV[6])
if day then
    now = day * 86400
else
    day = math.floor(now / 86400)
end
if not is_current then
    return {{{NOT_CURRENT}, 0, 0, day, 0}}
end
if ARGV[11] ~= '' and math.abs(now - tonumber(ARGV[11])) > {CLOCK_BOUND_S} then
    return {{{CLOCKS_DIFFER}, 0, 0, day, 0}}
end
if ARGV[12] ~= '' and day > tonumber(ARGV[12]) then
    return {{{CLOCK_LEAPT}, 0, 0, day, 0}}
end
-- Days never go back: a clock that is a little behind goes on with the last day.
local last = tonumber(redis.call('HGET', KEYS[1], 'last') or '0')
if last * 86400 - now > {CLOCK_BOUND_S} then
    return {{{CLOCK_WENT_BACK}, 0, 0, day, last}}
end
day = math.max(day, last)
local own = holds(ARGV[7], tonumber(ARGV[8]), day, ARGV[2], tonumber(ARGV[9]) == day and tonumber(ARGV[10]) or 0)
if not own then
    return {{{CAME_LATE}, 0, 0, day, last}}
end
local field = 'day:' .. day .. ':' .. ARGV[2]
local cap, wanted, members = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local rest = cap - tonumber(redis.call('HGET', KEYS[1], field) or '0')
if wanted > rest then
    return {{{REFUSED}, 0, rest, day, last}}
end
local slice = math.max(math.min(math.floor(cap / members), math.floor(rest / (2 * members))), wanted)
redis.call('HINCRBY', KEYS[1], field, string.format('%.0f', slice))
redis.call('HINCRBY', KEYS[1], own, string.format('%.0f', slice))
redis.call('HSET', KEYS[1], 'last', day)
return {{{GRANTED}, slice, rest - slice, day, last}}
"""

GIVE_BACK = f"""
-- KEYS: the fleet's money. ARGV: generation, tenant, day, process, its turn, what it holds of that day.
-- Returns 1, or 0 if this Redis does not know it at all, or has heard later news.
{_IS_CURRENT}
{_HELD}
if not is_current then
    return 0
end
return holds(ARGV[4], tonumber(ARGV[5]), ARGV[3], ARGV[2], tonumber(ARGV[6])) and 1 or 0
"""

RESTORE = f"""
-- KEYS: the fleet's money. ARGV: generation, the last day of a grant, then process, tenant, day and amount of every grant.
-- Returns 1, or 0 if a later one came first.
{_KNOWN}
if known[1] == run and tonumber(known[2]) >= tonumber(ARGV[1]) then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'run', run, 'generation', ARGV[1], 'last', ARGV[2])
for i = 3, #ARGV, 4 do
    local tenant, day, amount = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    redis.call('HINCRBY', KEYS[1], 'day:' .. day .. ':' .. tenant, amount)
    redis.call('HINCRBY', KEYS[1], 'held:' .. day .. ':' .. #tenant .. ':' .. tenant .. ':' .. ARGV[i], amount)
end
return 1
"""

# -- the chore ---------------------------------------------------------------------------------------------------


class DollarLease(Chore):
    """Keeps the leases of all accounts; a chore of the member's thread.

    However processes, Redis and the journal's machine die, at most the cap is leased, and so at most the cap is spent (and what
    single calls cost beyond their upper bounds): a grant counts in the journal before it is spent; a Redis that has forgotten,
    or is of an earlier run, grants nothing until the journal's sums are restored; and a restoration makes void every grant that
    the journal does not have yet. Days never go back, and where clocks disagree nothing is granted. A grant whose answer is
    lost, or that the journal does not take, returns to the cap with the next exchange.

    Args:
        daily_usd: tenant to dollars a day; ``"*"`` for each of the others.
        processes: returns the number of processes that live; or 1 / p, where orders give this one the part p of the cap.
        is_alone: returns whether Redis does not answer.
        wake: asks for the next round now.
        clock: the time of this machine, in seconds since 1970; the clock of Redis has to agree with it.
        elapsed_s: seconds since any moment, which no step of a clock changes.
        day: the day to lease for; None for the server's own. For tests.
    """

    def __init__(
        self,
        journal: SpendJournal,
        process: str,
        daily_usd: Mapping[str, float],
        *,
        processes: Callable[[], float],
        is_alone: Callable[[], bool],
        wake: Callable[[], None],
        clock: Callable[[], float] = time.time,
        elapsed_s: Callable[[], float] = time.monotonic,
        day: int | None = None,
    ) -> None:
        self.day = day
        self._journal, self._process, self._daily_usd = journal, process, dict(daily_usd)
        self._processes, self._is_alone, self._wake = processes, is_alone, wake
        self._accounts: dict[str, TenantAccount] = {}
        self._held: dict[TenantDay, int] = {}  # what the journal says of this process
        self._slice: dict[str, int] = {}
        self._unsure: set[TenantDay] = set()  # of which the journal may say more than is held
        self._turn = 0  # grows with each exchange, so that Redis sees which came late
        self._generation = -1
        self._clock, self._elapsed_s = clock, elapsed_s
        self._seen: tuple[int, float] | None = None  # the day of the last grant, and when that was
        self._told = ""
        self._why = ""
        self._lock = threading.Lock()

    def go_alone(self, link: RedisLink) -> None:
        """Nothing more is leased; refusals say why."""
        self._why = link.why

    def account(self, tenant: str) -> TenantAccount | None:
        """Return the account of a tenant; None if nothing caps it."""
        with self._lock:
            known = self._accounts.get(tenant)
            if known is None:
                usd = self._daily_usd.get(tenant, self._daily_usd.get(OTHERS))
                if usd is None:
                    return None
                known = self._accounts[tenant] = TenantAccount(
                    tenant, usd, is_alone=self._is_alone, wake=self._wake, why_alone=lambda: self._why
                )
            return known

    def do(self, link: RedisLink) -> None:
        """Lease what accounts want.

        Raises:
            FleetUnreachable: Redis does not answer. The leases stay as they are.
        """
        with self._lock:
            accounts = list(self._accounts.values())
        for account in accounts:
            account.take_refusals()  # the calls have raised them: nobody else reads them
            wanted, least = (math.ceil(usd * NANO) for usd in account.wanted_usd())
            free = account.free_usd() * NANO
            try:
                self._settle_unsure(link, account)
                # Before the slice is used up, so that calls seldom have to wait for the next.
                if wanted or (self._slice.get(account.tenant, 0) and free < LOW * self._slice[account.tenant]):
                    self._lease(link, account, wanted, least)
            except JournalUnavailable as error:  # without it no dollars
                self._tell(account, str(error))

    def _lease(self, link: RedisLink, account: TenantAccount, wanted: int, least: int) -> None:
        """Lease a slice of at least ``wanted``, or ``least`` where the cap allows no more; 0 for any that it allows."""
        # A restoration, a smaller wish and a change of day each ask once more. What is left then waits for the next round.
        for _ in range(4):
            status, nano_usd, _, day, last = self._asked(link, account, wanted)
            if status == NOT_CURRENT:  # this Redis does not know what is spent
                self._restore(link, int(day))
                continue
            if status == REFUSED and least < wanted:
                wanted = least
                continue
            if status == REFUSED:
                account.refuse()
            elif status in (CLOCK_WENT_BACK, CLOCKS_DIFFER, CLOCK_LEAPT):
                self._tell(account, _clock_problem(status, int(day), int(last)))
            elif status == GRANTED and nano_usd:
                where = (account.tenant, int(day))
                if not self._journaled(link, where, nano_usd):
                    self._restore(link, int(day))  # the journal is of a later generation than this Redis and this process
                    continue
                lost = self._accept(link, account, where, nano_usd)
                if lost and wanted:  # the call counted on what another day had left
                    wanted = lost
                    continue
            return

    def _asked(self, link: RedisLink, account: TenantAccount, wanted: int) -> Any:
        """Redis's answer to the wish for a slice, given this process's holdings."""
        cap, members = round(account.daily_usd * NANO), max(self._processes(), 1.0)
        held_day = max((day for tenant, day in self._held if tenant == account.tenant), default=0)
        held = self._held.get((account.tenant, held_day), 0)
        day: int | str = "" if self.day is None else self.day
        now: float | str = "" if self.day is not None else self._clock()
        self._turn += 1
        return link.run_script(
            GRANT,
            [MONEY],
            [
                *(self._generation, account.tenant, cap, wanted, members, day),
                *(self._process, self._turn, held_day, held, now, self._last_possible_day()),
            ],
        )

    def _journaled(self, link: RedisLink, where: TenantDay, nano_usd: int) -> bool:
        """Write a grant down; False if it is of an earlier generation. What cannot be written returns to the cap."""
        try:
            return self._journal.hold(self._generation, self._process, where, self._held.get(where, 0) + nano_usd)
        except JournalUnavailable:  # perhaps it is written all the same
            self._unsure.add(where)
            self._say_held(link, where)
            raise

    def _accept(self, link: RedisLink, account: TenantAccount, where: TenantDay, nano_usd: int) -> int:
        """Let the account spend a grant that is written down; return what was left of other days."""
        self._held[where] = self._held.get(where, 0) + nano_usd
        self._slice[account.tenant] = nano_usd
        self._seen = where[1], self._elapsed_s()
        self._told = ""
        try:
            return self._return_other_days(link, account, where)
        finally:
            # Last, since the return takes whatever the account has free. Even where it fails: the grant is written down.
            account.add_lease(nano_usd)

    def _last_possible_day(self) -> int | str:
        """By the time that this process has lived since its last grant, whatever clocks say; "" before the first."""
        if self._seen is None:
            return ""
        last, at_s = self._seen
        return last + 1 + math.floor((self._elapsed_s() - at_s + CLOCK_BOUND_S) / DAY_S)

    def _tell(self, account: TenantAccount, why: str) -> None:
        """Refuse the calls that wait, and say why: to them, and once in the log."""
        account.refuse(why)
        if why != self._told:
            self._told = why
            _LOG.error("no dollars are leased for the tenants of this fleet: %s", why)

    def _restore(self, link: RedisLink, today: int) -> None:
        """Tell Redis what the journal says is spent or leased, under a new generation; or learn that another process has."""
        current = self._journal.generation()
        if current != self._generation and current:
            known = link.fields(MONEY, "generation")[0]
            self._generation = current
            if known is not None and int(known) == current:
                return  # whether it is of this run, the next grant tells
        found = self._journal.restore(today)
        grants = [item for grant in found.grants for item in grant]
        link.run_script(RESTORE, [MONEY], [found.generation, found.last_day, *grants])
        self._generation = found.generation

    def _settle_unsure(self, link: RedisLink, account: TenantAccount) -> None:
        """Write down again what is held, where nobody knows whether the journal has taken more, and tell Redis."""
        for where in [unsure for unsure in self._unsure if unsure[0] == account.tenant]:
            self._journal.give_back(self._process, where, self._held.get(where, 0))
            self._unsure.discard(where)
            self._say_held(link, where)

    def _say_held(self, link: RedisLink, where: TenantDay) -> None:
        self._turn += 1
        held = self._held.get(where, 0)
        link.run_script(GIVE_BACK, [MONEY], [self._generation, *where, self._process, self._turn, held])

    def _return_other_days(self, link: RedisLink, account: TenantAccount, today: TenantDay) -> int:
        """Give back what is left of leases of other days, which is those days' money; return how much it was."""
        returned = 0
        for where in [held for held in self._held if held[0] == account.tenant and held[1] != today[1]]:
            returned += self._return(link, account, where)
            del self._held[where]
        return returned

    def _return(self, link: RedisLink, account: TenantAccount, where: TenantDay) -> int:
        nano_usd = account.take_back(self._held[where])
        if nano_usd:
            with suppress(JournalUnavailable):  # else it counts as spent on its day
                # The journal first: what Redis counts too much does no harm.
                self._journal.give_back(self._process, where, self._held[where] - nano_usd)
                self._held[where] -= nano_usd
                self._say_held(link, where)
        return nano_usd

    def close(self, link: RedisLink) -> None:
        """Give back what is left, as far as Redis and the journal can be reached."""
        try:
            for where in list(self._held):
                account = self.account(where[0])
                if account is not None:
                    self._return(link, account, where)
        except (FleetUnreachable, JournalUnavailable):
            pass
        self._journal.close()


def _clock_problem(status: int, day: int, last: int) -> str:
    if status == CLOCKS_DIFFER:
        return "the clocks of Redis and of this machine are more than an hour apart: set them right"
    if status == CLOCK_LEAPT:
        return f"the clock of Redis has leapt ahead to {_date(day)}: set it right, or start this process anew if it is right"
    return (
        f"the clock of Redis has gone back: it says {_date(day)}, and dollars were already granted for {_date(last)}: set it "
        "right; if it was ahead then, see docs/fleet.md"
    )


def _date(day: int) -> str:
    try:
        return datetime.fromtimestamp(day * DAY_S, UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return f"day {day}"
