"""Processes that share an engine's limits, in a world whose time the test sets. Redis is real."""

from collections import deque
from itertools import count

from vinelm.backends.limits.rate_share import RateAmounts, RateShare
from vinelm.clock import VirtualClock
from vinelm.controller.fleet.leases.rate_lease import RateLease
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.errors import CallError, FleetUnreachable

MINUTE = 60.0


class Worker:
    """One process: calls line up and start as its share allows."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.share = RateShare(world.limits, MINUTE, world.clock, (), lambda: None)
        self.part = None  # of the limits, by the orders of a policy
        self.lease = RateLease("east", self.share, name, part=lambda: self.part)
        self.line, self.refused = deque(), 0
        self.link = RedisLink(world.url, world.name)

    def call(self, tokens=0):
        self.line.append(self.share.line_up(tokens))

    def round(self):
        """What the member's thread does every 250 ms, and the calls that it lets start."""
        try:
            if not self.world.is_up:
                raise FleetUnreachable("down")
            self.lease.wall_ms = int(self.world.clock.seconds * 1000) + self.world.wall_offset_ms
            self.lease.do(self.link)
            is_alone = False
        except FleetUnreachable:
            self.lease.go_alone(self.link)
            is_alone = True
        while self.line:
            turn = self.line[0]
            try:
                if turn.pause_s() > 0.0:
                    return
                self.world.started.append((self.world.clock.seconds, turn.tokens))
            except CallError:  # with too small a share: it would wait for ever
                assert is_alone
                with turn:
                    self.refused += 1
            self.line.popleft()


class World:
    def __init__(self, url, name, requests=0, tokens=0):
        self.clock = VirtualClock(1000.0)
        self.limits = RateAmounts(requests, tokens)
        self.url, self.name, self.link = url, name, RedisLink(url, name)
        self.is_up, self.wall_offset_ms = True, 0
        self.started, self.workers, self.numbers = [], [], count()

    def worker(self):
        self.workers.append(Worker(self, f"p{next(self.numbers)}"))
        return self.workers[-1]

    def kill(self, worker):
        """Nothing is said to anybody; ``workers`` keeps the living."""
        self.workers.remove(worker)

    def flush(self):
        """Redis forgets all."""
        self.link._redis.delete(*self.link._redis.keys(self.link.prefix + "*") or ["none"])

    def lose(self, key):
        """Redis evicts one key."""
        self.link._redis.delete(self.link.prefix + key)

    def run(self, seconds, step=0.25):
        for _ in range(round(seconds / step)):
            self.clock.seconds += step
            for worker in self.workers:
                worker.round()

    def most_in_a_minute(self):
        """The most requests, and tokens, that started in any half-open window of a minute."""
        most, window = (0, 0), deque()
        for at, tokens in self.started:
            window.append((at, tokens))
            while window[0][0] <= at - MINUTE:
                window.popleft()
            most = max(most[0], len(window)), max(most[1], sum(t for _, t in window))
        return most
