"""Leases dollars for the accounts of this process, and writes each lease into the journal before it is used."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping

from vinelm.controller.fleet.leases.dollar_scripts import GIVE_BACK, GRANT, RESTORE
from vinelm.controller.fleet.leases.journal import SpendJournal, TenantDay
from vinelm.controller.fleet.leases.tenant_account import NANO, TenantAccount
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.errors import FleetUnreachable, JournalUnavailable

MONEY = "money"
OTHERS = "*"
"""The name under which ``daily_usd`` caps each tenant that it does not name."""
LOW = 0.5
"""A new slice is asked for when less than this part of the last one is free."""


class DollarLease:
    """Keeps the leases of all accounts; a chore of the member's thread.

    However processes, Redis and the journal's machine die, at most the cap is leased, and so at most the cap is spent (and what
    single calls cost beyond their upper bounds): a grant counts in the journal before it is spent; a Redis that has forgotten,
    or is of an earlier run, grants nothing until the journal's sums are restored; and a restoration makes void every grant that
    the journal does not have yet.

    Args:
        journal: the durable record.
        process: the name of this process.
        daily_usd: tenant to dollars a day; ``"*"`` for each of the others.
        processes: returns the number of processes that live; or 1 / p, where orders give this one the part p of the cap.
        is_alone: returns whether Redis does not answer.
        wake: asks for the next round now.
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
        day: int | None = None,
    ) -> None:
        self.day = day
        self._journal, self._process, self._daily_usd = journal, process, dict(daily_usd)
        self._processes, self._is_alone, self._wake = processes, is_alone, wake
        self._accounts: dict[str, TenantAccount] = {}
        self._held: dict[TenantDay, int] = {}  # what the journal says of this process
        self._slice: dict[str, int] = {}
        self._generation = -1
        self._lock = threading.Lock()

    def account(self, tenant: str) -> TenantAccount | None:
        """Return the account of a tenant; None if nothing caps it."""
        with self._lock:
            known = self._accounts.get(tenant)
            if known is None:
                usd = self._daily_usd.get(tenant, self._daily_usd.get(OTHERS))
                if usd is None:
                    return None
                known = self._accounts[tenant] = TenantAccount(tenant, usd, is_alone=self._is_alone, wake=self._wake)
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
            if wanted or (self._slice.get(account.tenant, 0) and free < LOW * self._slice[account.tenant]):
                try:
                    self._lease(link, account, wanted, least)
                except JournalUnavailable:  # without it no dollars
                    account.refuse()

    def _lease(self, link: RedisLink, account: TenantAccount, wanted: int, least: int) -> None:
        """Lease a slice of at least ``wanted``, or ``least`` where the cap allows no more; 0 for any that it allows."""
        cap = round(account.daily_usd * NANO)
        for _ in range(4):
            members = max(self._processes(), 1.0)
            arguments: list[str | int | float] = [self._generation, account.tenant, cap, wanted, members, self._day_asked]
            status, nano_usd, _, day = link.run_script(GRANT, [MONEY], arguments)
            if status == -1:  # this Redis does not know what is spent
                self._restore(link)
                continue
            where = (account.tenant, int(day))
            if status == 1 and nano_usd and self._journal.add(self._generation, self._process, where, nano_usd):
                self._held[where] = self._held.get(where, 0) + nano_usd
                self._slice[account.tenant] = nano_usd
                lost = self._return_other_days(link, account, where)
                account.add_lease(nano_usd)
                if lost and wanted:  # the call counted on what another day had left
                    wanted = lost
                    continue
            elif status == 0 and least < wanted:
                wanted = least
                continue
            elif status == 0:
                account.refuse()
            return

    @property
    def _day_asked(self) -> int | str:
        return "" if self.day is None else self.day

    def _restore(self, link: RedisLink) -> None:
        """Tell Redis what the journal says is spent or leased, under a new generation; or learn that another process has."""
        current = self._journal.generation()
        if current != self._generation and current:
            known = link.hash(MONEY).get("generation")
            self._generation = current
            if known is not None and int(known) == current:
                return  # whether it is of this run, the next grant tells
        number, sums = self._journal.restore()
        pairs = [item for (tenant, day), nano in sums.items() for item in (f"day:{day}:{tenant}", nano)]
        link.run_script(RESTORE, [MONEY], [number, *pairs])
        self._generation = number

    def _return_other_days(self, link: RedisLink, account: TenantAccount, today: TenantDay) -> int:
        """Give back what is left of leases of other days, which is those days' money; return how much it was."""
        returned = 0
        for where in [held for held in self._held if held[0] == account.tenant and held[1] != today[1]]:
            returned += self._return(link, account, where)
            del self._held[where]
        return returned

    def _return(self, link: RedisLink, account: TenantAccount, where: TenantDay) -> int:
        nano_usd = account.take_back(self._held[where])
        if nano_usd:  # the journal first: what Redis counts too much does no harm
            self._journal.give_back(self._process, where, nano_usd)
            self._held[where] -= nano_usd
            link.run_script(GIVE_BACK, [MONEY], [self._generation, where[0], where[1], nano_usd])
        return nano_usd

    def go_alone(self, link: RedisLink) -> None:
        """Calls go on within what is leased."""

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
