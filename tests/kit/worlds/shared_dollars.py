"""Processes that share tenants' budgets, driven round by round. Redis and the journal are real; a kill is silence."""

from itertools import count

from vinelm.controller.fleet.leases.dollar_lease import DollarLease
from vinelm.controller.fleet.leases.journal import journal_at
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.errors import CallRefused, FleetUnreachable
from vinelm.rows.observation import Usage

DAY = 20_000


class Spender:
    """One process. Every dollar that it spends is noted in the world, as its provider would bill it."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.open = []
        self.lease = DollarLease(
            journal_at(world.journal),
            name,
            world.daily_usd,
            processes=lambda: max(len(world.spenders), 1),
            is_alone=lambda: True,  # so that no call of the test waits
            wake=lambda: None,
            day=world.day,
        )

    def round(self):
        self.lease.day = self.world.day
        if self.world.is_up:
            self.lease.do(self.world.link)

    def call(self, upper_usd, tenant="acme"):
        """Return the permit of a call, leased for if need be; None if it is refused."""
        account = self.lease.account(tenant)
        for _ in range(2):
            try:
                permit = account.authorize(upper_usd)
            except CallRefused:
                with account.waiting(upper_usd):
                    self.round()
            else:
                self.open.append(permit)
                self.world.leased_days.update(day for _, day in self.lease._held)
                return permit
        return None

    def pay(self, permit, usd):
        self.open.remove(permit)
        self.world.spent_usd += usd
        permit.settle(Usage(model="m", cost_usd=usd, latency_s=0.0))


class Treasury:
    def __init__(self, url, name, journal, **daily_usd):
        self.link, self.journal, self.daily_usd = RedisLink(url, name), journal, daily_usd
        self.spenders, self.numbers, self.spent_usd = [], count(), 0.0
        self.is_up, self.day = True, DAY
        self.leased_days = set()  # days whose dollars calls were allowed by; a clock may have gone back since
        self.latest = DAY
        self.dead_nano = 0  # held by processes that died

    def spender(self):
        self.spenders.append(Spender(self, f"p{next(self.numbers)}"))
        return self.spenders[-1]

    def turn_to(self, day):
        """The clock of Redis says another day."""
        self.day = day
        self.latest = max(day, self.latest)

    def kill(self, spender):
        """What its open calls cost is billed all the same: up to their bounds."""
        self.spenders.remove(spender)
        self.spent_usd += sum(permit.upper_usd for permit in spender.open)
        self.dead_nano += sum({**spender.lease._past, **spender.lease._held}.values())
        spender.lease._journal.close()

    def flush(self):
        """Redis forgets all."""
        self.link._redis.delete(*self.link._redis.keys(self.link.prefix + "*") or ["none"])

    def counted_usd(self, tenant="acme"):
        """What Redis says is spent or leased today."""
        try:
            return int(self.link.hash("money").get(f"day:{self.day}:{tenant}", 0)) / 1e9
        except FleetUnreachable:
            return None
