"""Leases dollars from the daily caps for this process's accounts. Each lease is journaled before it is used."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from vinelm.controller.fleet.leases.journal import SpendJournal, TenantDay
from vinelm.controller.fleet.leases.tenant_account import NANO, TenantAccount
from vinelm.controller.fleet.member import Chore
from vinelm.controller.fleet.redis_link import RUN, RedisLink
from vinelm.errors import FleetUnreachable, JournalUnavailable

MONEY = "money"
OTHERS = "*"
"""The name under which ``daily_usd`` caps each tenant without an entry."""
DAY_S = 86_400
MOST_DAYS = 60
"""For how many tenants' days a process remembers its spending."""
LOW = 0.5
"""A new slice is requested when less than this part of the last slice is free."""

_LOG = logging.getLogger(__name__)

# -- the scripts: Redis knows the sums, the journal knows who was granted what ------------------------------------ With every
# exchange each process reports its holdings. Anything beyond that which Redis counts for it was granted and never used, because
# the answer was lost or the journal could not be written: it returns to the cap at once.

GRANTED, REFUSED, NOT_CURRENT, CLOCKS_DIFFER, CLOCK_LEAPT, CAME_LATE = 1, 0, -1, -3, -4, -5
"""The possible answers of :data:`GRANT`."""
CLOCK_BOUND_S = 3600
"""How far clocks may differ before nothing is granted. A clock that is behind the last day by less counts for that day."""

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
-- 1 / p, if this one may count on the part p), day ('' for the server's), process, its turn, its clock in seconds ('' if not to
-- be compared), the last day that it takes for possible ('' if it cannot tell), then each day that it holds dollars of, or has
-- spent of, and how many.
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
if ARGV[9] ~= '' and math.abs(now - tonumber(ARGV[9])) > {CLOCK_BOUND_S} then
    return {{{CLOCKS_DIFFER}, 0, 0, day, 0}}
end
if ARGV[10] ~= '' and day > tonumber(ARGV[10]) then
    return {{{CLOCK_LEAPT}, 0, 0, day, 0}}
end

-- A clock that says an earlier day than the last one of a grant was wrong then, or is wrong now, and nobody can say which. So
-- what was granted for later days may have been granted today, and counts today as well. When it comes back to the last day,
-- what was granted meanwhile may be of that day, and counts there. A clock that is a little behind goes on with the last day.
local found = redis.call('HMGET', KEYS[1], 'last', 'back', 'carry', 'days')
local last, back, carry = tonumber(found[1] or '0'), tonumber(found[2] or '0'), tonumber(found[3] or '0')
local days = found[4] or ''
local is_behind, also = last * 86400 - now > {CLOCK_BOUND_S}, 0
local function counted(one)
    return tonumber(redis.call('HGET', KEYS[1], 'day:' .. one .. ':' .. ARGV[2]) or '0')
end
if is_behind and not found[4] then
    return {{{NOT_CURRENT}, 0, 0, day, 0}}
end
if is_behind then
    for one in string.gmatch(days, '%d+') do
        if tonumber(one) > day then
            also = also + counted(one)
        end
    end
    back, carry = day, 0
else
    day = math.max(day, last)
    if back > 0 and carry == 0 then
        carry = day
    end
    if back > 0 and carry == day then
        also = counted(string.format('%.0f', back))
    else
        back, carry = 0, 0
    end
end

local mine = 0
for i = 11, #ARGV, 2 do
    if tonumber(ARGV[i]) == day then
        mine = tonumber(ARGV[i + 1])
    end
end
local own = holds(ARGV[7], tonumber(ARGV[8]), day, ARGV[2], mine)
if not own then
    return {{{CAME_LATE}, 0, 0, day, last}}
end
local field = 'day:' .. day .. ':' .. ARGV[2]
local cap, wanted, members = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local rest = cap - counted(day) - also
if wanted > rest then
    return {{{REFUSED}, 0, rest, day, last}}
end
local slice = math.max(math.min(math.floor(cap / members), math.floor(rest / (2 * members))), wanted)
redis.call('HINCRBY', KEYS[1], field, string.format('%.0f', slice))
redis.call('HINCRBY', KEYS[1], own, string.format('%.0f', slice))
if not string.find(' ' .. days .. ' ', ' ' .. day .. ' ', 1, true) then
    days = days .. ' ' .. day
end
redis.call('HSET', KEYS[1], 'last', math.max(day, last), 'back', back, 'carry', carry, 'days', days)
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
-- KEYS: the fleet's money. ARGV: generation, the last day of a grant, the last one below it since a clock went back, the day on
-- which that counts (0: none), then process, tenant, day and amount of every grant.
-- Returns 1, or 0 if a later one came first.
{_KNOWN}
if known[1] == run and tonumber(known[2]) >= tonumber(ARGV[1]) then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'run', run, 'generation', ARGV[1], 'last', ARGV[2], 'back', ARGV[3], 'carry', ARGV[4])
local days, seen = '', {{}}
for i = 5, #ARGV, 4 do
    local tenant, day, amount = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    if not seen[day] then
        seen[day], days = true, days .. ' ' .. day
    end
    redis.call('HINCRBY', KEYS[1], 'day:' .. day .. ':' .. tenant, amount)
    redis.call('HINCRBY', KEYS[1], 'held:' .. day .. ':' .. #tenant .. ':' .. tenant .. ':' .. ARGV[i], amount)
end
redis.call('HSET', KEYS[1], 'days', days)
return 1
"""

# -- the chore ---------------------------------------------------------------------------------------------------


class DollarLease(Chore):
    """Keeps this process's leases of dollars from the tenants' daily caps; runs as a chore in the member's thread.

    Tenants never spend more than their cap, except for calls that cost more than their stated maximum. This holds even if
    processes, Redis or the journal's machine crash.

    Each grant is written to the journal before it is spent. If Redis has lost the granted sums, or if clocks disagree, nothing
    is granted until this is resolved. Lost sums are restored from the journal; grants that it lacks become void.

    Args:
        daily_usd: the daily cap in dollars by tenant; ``"*"`` for each other tenant.
        processes: returns the number by which a cap is divided to get this process's part. It is the number of live processes,
            or 1 / part if orders set the part.
        is_alone: returns True if Redis does not answer.
        wake: requests the next round of the chores now.
        elapsed_s: seconds from a monotonic clock.
        day: the day to lease for, in days since 1970; None for the server's present day. For tests.
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
        elapsed_s: Callable[[], float] = time.monotonic,
        day: int | None = None,
    ) -> None:
        self.day = day
        self._journal, self._process, self._daily_usd = journal, process, dict(daily_usd)
        self._processes, self._is_alone, self._wake = processes, is_alone, wake
        self._accounts: dict[str, TenantAccount] = {}
        self._held: dict[TenantDay, int] = {}  # this process's holdings by the journal
        self._past: dict[TenantDay, int] = {}  # and of days whose rest was given back, since a clock may come back to them
        self._slice: dict[str, int] = {}
        self._unsure: set[TenantDay] = set()  # days for which the journal may have more than is held
        self._turn = 0  # grows with each exchange, so that Redis sees which came late
        self._generation = -1
        self._clock: Callable[[], float] = time.time  # the clock of Redis has to agree with it
        self._elapsed_s = elapsed_s
        self._seen: tuple[int, float] | None = None  # the day of the last grant, with its time
        self._told = ""
        self._why = ""
        self._told_of = 0  # the last day for which a late clock was reported
        self._lock = threading.Lock()

    def go_alone(self, link: RedisLink) -> None:
        """Store the reason why ``link`` cannot reach Redis, so that refusals can give this reason."""
        self._why = link.why

    def account(self, tenant: str) -> TenantAccount | None:
        """Return the account of a tenant; None if the tenant has no cap."""
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
        """Lease the dollars that the waiting calls of all accounts need.

        Raises:
            FleetUnreachable: Redis does not answer. The leases stay as they are.
        """
        with self._lock:
            accounts = list(self._accounts.values())
        for account in accounts:
            account.take_refusals()  # the calls have raised them, and nothing else reads them
            wanted, least = (math.ceil(usd * NANO) for usd in account.wanted_usd())
            free = account.free_usd() * NANO
            try:
                self._settle_unsure(link, account)
                # Requested before the slice is used up, so that calls seldom have to wait for the next one.
                if wanted or (self._slice.get(account.tenant, 0) and free < LOW * self._slice[account.tenant]):
                    self._lease(link, account, wanted, least)
            except JournalUnavailable as error:  # no dollars without the journal
                self._tell(account, str(error))

    def _lease(self, link: RedisLink, account: TenantAccount, wanted: int, least: int) -> None:
        """Lease at least ``wanted`` billionths of a dollar; if the cap does not allow that, lease at least ``least``.

        If ``wanted`` is 0, lease as much as Redis offers. If the cap allows neither amount, refuse the waiting calls.
        """
        # A restoration, a smaller wish and a change of day each take one more attempt. The rest waits for the next round.
        for _ in range(4):
            status, nano_usd, _, day, last = self._asked(link, account, wanted)
            if status == NOT_CURRENT:  # this Redis does not know what was spent
                self._restore(link)
                continue
            if status == REFUSED and least < wanted:
                wanted = least
                continue
            if status in (REFUSED, GRANTED):
                behind = _behind(int(day), int(last))
                if behind and int(last) != self._told_of:
                    _LOG.warning("%s", behind)
                self._told_of = int(last) if behind else 0
            if status == REFUSED:
                account.refuse(behind, is_cap=True)
            elif status in (CLOCKS_DIFFER, CLOCK_LEAPT):
                self._tell(account, _clock_problem(status, int(day)))
            elif status == GRANTED and nano_usd:
                where = (account.tenant, int(day))
                # Redis has counted the slice; the journal must have it before a cent is spent. A Redis that forgets is then
                # restored from the journal, and never grants the same dollars twice.
                if not self._journaled(link, where, nano_usd):
                    self._restore(link)  # the journal belongs to a later generation than this Redis and this process
                    continue
                lost = self._accept(link, account, where, nano_usd)
                if lost and wanted:  # the call had counted on the rest of another day
                    wanted = lost
                    continue
            return

    def _asked(self, link: RedisLink, account: TenantAccount, wanted: int) -> Any:
        """Ask Redis for at least ``wanted`` billionths of a dollar, and report what this process holds.

        Returns the answer of the script ``GRANT``: status, amount granted, amount left of the cap, day, and the latest day
        of all earlier grants.
        """
        cap, members = round(account.daily_usd * NANO), max(self._processes(), 1.0)
        known = [one for one in {**self._past, **self._held} if one[0] == account.tenant]
        held = [part for where in known for part in (where[1], self._amount(where))]
        day: int | str = "" if self.day is None else self.day
        now: float | str = "" if self.day is not None else self._clock()
        self._turn += 1
        return link.run_script(
            GRANT,
            [MONEY],
            [
                *(self._generation, account.tenant, cap, wanted, members, day),
                *(self._process, self._turn, now, self._last_possible_day(), *held),
            ],
        )

    def _amount(self, where: TenantDay) -> int:
        """Return the amount that this process holds or has spent of a tenant's cap for a day, in billionths of a dollar.

        ``where`` is the tenant and the day.
        """
        return self._held.get(where, self._past.get(where, 0))

    def _journaled(self, link: RedisLink, where: TenantDay, nano_usd: int) -> bool:
        """Write a grant of ``nano_usd`` billionths of a dollar to the journal, and return True.

        Return False, without writing, if Redis's sums were restored since the grant, so that the grant is void. If the journal
        cannot be written, the grant returns to the cap, and :class:`JournalUnavailable` is raised.
        """
        try:
            return self._journal.hold(self._generation, self._process, where, self._amount(where) + nano_usd)
        except JournalUnavailable:  # it may have been written all the same
            self._unsure.add(where)
            self._say_held(link, where)
            raise

    def _accept(self, link: RedisLink, account: TenantAccount, where: TenantDay, nano_usd: int) -> int:
        """Add a grant of ``nano_usd`` billionths of a dollar to the account, after the grant was written to the journal.

        Unused grants of other days are given back. Returns the amount given back, in billionths of a dollar.
        """
        self._held[where] = self._amount(where) + nano_usd
        # A clock may return to a day whose rest was returned: then this is one holding again, not two.
        self._past.pop(where, None)
        self._slice[account.tenant] = nano_usd
        self._seen = where[1], self._elapsed_s()
        self._told = ""
        try:
            return self._return_other_days(link, account, where)
        finally:
            # Last, since the return takes all that is free in the account. Even if it fails, the grant is written down.
            account.add_lease(nano_usd)

    def _last_possible_day(self) -> int | str:
        """Return the latest day that today can be, in days since 1970; "" before this process's first grant.

        The bound is the last grant's day plus the time since then by the monotonic clock, so wall clocks do not matter. A
        later day in Redis's answer means that a clock is wrong.
        """
        if self._seen is None:
            return ""
        last, at_s = self._seen
        return last + 1 + math.floor((self._elapsed_s() - at_s + CLOCK_BOUND_S) / DAY_S)

    def _tell(self, account: TenantAccount, why: str) -> None:
        """Refuse the account's waiting calls with the reason ``why``, and log the reason if it is new."""
        account.refuse(why)
        if why != self._told:
            self._told = why
            _LOG.error("no dollars are leased for the tenants of this fleet: %s", why)

    def _restore(self, link: RedisLink) -> None:
        """Write the sums that were granted so far from the journal to Redis, unless another process has done so already.

        From then on, the journal refuses to record a grant that Redis made before. The restored sums do not contain such a
        grant, so its dollars must not be spent.
        """
        # Another process may have restored already. Its generation is newer: adopting it is enough.
        current = self._journal.generation()
        if current != self._generation and current:
            known = link.fields(MONEY, "generation")[0]
            self._generation = current
            if known is not None and int(known) == current:
                return  # the next grant shows whether it belongs to this run
        # The journal increments the generation in the same step. It refuses grants of the old generation that are under way, so
        # that they cannot be spent on top of the restored sums.
        found = self._journal.restore()
        grants = [item for grant in found.grants for item in grant]
        link.run_script(RESTORE, [MONEY], [found.generation, found.last_day, found.back, found.carry, *grants])
        self._generation = found.generation

    def _settle_unsure(self, link: RedisLink, account: TenantAccount) -> None:
        """Correct the journal and Redis for the days on which writing an account's grant to the journal failed.

        A write that seemed to fail may have been stored, so that the journal shows more than this process holds. The amount
        that it really holds is written to both.
        """
        for where in [unsure for unsure in self._unsure if unsure[0] == account.tenant]:
            self._journal.give_back(self._process, where, self._amount(where))
            self._unsure.discard(where)
            self._say_held(link, where)

    def _say_held(self, link: RedisLink, where: TenantDay) -> None:
        self._turn += 1
        link.run_script(GIVE_BACK, [MONEY], [self._generation, *where, self._process, self._turn, self._amount(where)])

    def _return_other_days(self, link: RedisLink, account: TenantAccount, today: TenantDay) -> int:
        """Give back unused dollars that were leased for other days than today.

        Each amount becomes free in the cap of its day. Returns the total in billionths of a dollar.
        """
        returned = 0
        for where in [held for held in self._held if held[0] == account.tenant and held[1] != today[1]]:
            # First, since what is free later no longer belongs to that day.
            self._past[where] = self._held.pop(where)
            returned += self._return(link, account, where, self._past)
        while len(self._past) > MOST_DAYS:
            del self._past[min(self._past, key=itemgetter(1))]
        return returned

    def _return(self, link: RedisLink, account: TenantAccount, where: TenantDay, kept: dict[TenantDay, int]) -> int:
        nano_usd = account.take_back(kept[where])
        if nano_usd:
            with suppress(JournalUnavailable):  # otherwise it counts as spent on its day
                # The journal first: if Redis counts too much, that does no harm.
                self._journal.give_back(self._process, where, kept[where] - nano_usd)
                kept[where] -= nano_usd
                self._say_held(link, where)
        return nano_usd

    def close(self, link: RedisLink) -> None:
        """Give back unused dollars if Redis and the journal can be reached, and close the journal."""
        try:
            for where in list(self._held):
                account = self.account(where[0])
                if account is not None:
                    self._return(link, account, where, self._held)
        except (FleetUnreachable, JournalUnavailable):
            pass
        self._journal.close()


def _clock_problem(status: int, day: int) -> str:
    if status == CLOCKS_DIFFER:
        return "the clocks of Redis and of this machine are more than an hour apart: set them right"
    return f"the clock of Redis has leapt ahead to {_date(day)}: set it right, or start this process anew if it is right"


def _behind(day: int, last: int) -> str:
    if last <= day:
        return ""
    return (
        f"the clock of Redis has gone back: it says {_date(day)}, and dollars were already granted for {_date(last)}, which "
        "count for today as well: set it right if it is wrong now"
    )


def _date(day: int) -> str:
    try:
        return datetime.fromtimestamp(day * DAY_S, UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return f"day {day}"
