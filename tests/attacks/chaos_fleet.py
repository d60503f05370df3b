"""Kills serving processes, the leader of the global loop and their Redis at random, and counts what was spent and called.

Worker processes make calls within a fleet: each call reserves dollars of one tenant's day and waits for a rate limit, as a real
one does, but sends nothing. Every start and every dollar is written to a file before it counts. Two loops run a policy over
them: one leads, one waits. Meanwhile workers, the leader and Redis, which starts again empty, are killed with ``kill -9``, the
journal is locked for seconds, and Redis loses its sums of dollars or what is held of a rate, or goes back to older sums. At
the end: dollars at most the cap, calls in any minute at most the limit, no call failed, and no orders of a leader that was
replaced. A call that was under way in a killed process counts at its upper bound: it may have been billed.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import uuid
import warnings
from collections import deque
from contextlib import closing, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import attack_paths  # noqa: F401 - first: where the rest is
import redis
from fleet_parts.workload import fleet_workload
from redis_for_bench import own_redis
from studies import Options, named, study

from vinelm.backends.limits.rate_limits import EngineRateLimiter, RateLimits
from vinelm.controller import FleetConfig, GlobalLoop, RedisLink
from vinelm.controller.fleet.built_in_policies import fleet_policy
from vinelm.controller.fleet.joined.fleet import Fleet
from vinelm.errors import CallRefused, FleetUnreachable
from vinelm.rows.observation import Usage

UPPER_USD, MINUTE_S = 0.01, 60.0
KEYS = "vinelm:{chaos}:"
REDIS_SHARE = 0.05
"""Part of the kills that concern Redis. After each no new rates are granted for a minute, so that many would leave no calls."""
TROUBLE_SHARE = 0.1
"""Part of the blows that kill nobody: a journal that cannot be written, a key that is evicted, sums of earlier."""
LEADER_SHARE = 0.2
"""Part of the kills that concern the leader of the loop."""
POLICY, LOOPS = "slack+balance+shares", 2
PATH = ("large",)


def work(config: FleetConfig, limit: int, log: str, seed: int) -> None:
    """Make calls for ever."""
    warnings.simplefilter("ignore")
    rng, fleet = random.Random(seed), Fleet(config)
    limiter = EngineRateLimiter(RateLimits(requests_per_min=limit))
    fleet.share_limits({"east": limiter})
    account = fleet.account("acme")
    assert account is not None
    file = os.open(log, os.O_WRONLY | os.O_APPEND)

    def write(*words: object) -> None:
        os.write(file, (" ".join(map(str, words)) + "\n").encode())  # one write: lines of processes do not mix

    while True:
        number = uuid.uuid4().hex
        try:
            permit = account.authorize(UPPER_USD)
        except CallRefused:
            write("refused", number, 0, time.monotonic())
            time.sleep(0.05)
            continue
        write("reserved", number, UPPER_USD, time.monotonic())
        try:
            rows = fleet.rows(fleet_workload().planner, conversation=number, tenant="acme", deadline_s=rng.uniform(1.0, 60.0))
            rows.began("answer", PATH, 0.0, None)
            rows.gate(PATH, True)
            with limiter.admit(1, time.sleep, rows.standing("answer", 0.0)):
                rows.gate(PATH, False)
                write("started", number, 0, time.monotonic())  # one clock for all processes of a machine
                time.sleep(rng.expovariate(1 / 0.02))
            rows.interrupted(PATH)
            usd = UPPER_USD * rng.random()
            write("paid", number, usd, time.monotonic())
            permit.settle(Usage(model="m", cost_usd=usd, latency_s=0.0))
            write("obeyed", number, fleet.orders_version, time.monotonic())
        except Exception as error:
            write("failed", number, 0, type(error).__name__)


def lead(config: FleetConfig) -> None:
    """Run a policy over the fleet for ever, or wait to do so."""
    GlobalLoop(RedisLink(config.url, config.name), fleet_policy(POLICY)).run(lambda done: None)


class OrderWatch(threading.Thread):
    """Looks at the fleet's orders all the time, for orders of a leader that was replaced.

    Attributes:
        seen: versions of orders.
        elections: fencing numbers that orders came with.
        went_back: times that a number or a version was below one before, without an empty Redis in between.
        longest_s: the longest time without new orders while Redis answered.
    """

    def __init__(self, config: FleetConfig) -> None:
        super().__init__(daemon=True)
        self.seen = self.elections = self.went_back = 0
        self.longest_s, self.is_ended = 0.0, False
        self._link = RedisLink(config.url, config.name)

    def run(self) -> None:
        """Look, until it is ended."""
        before, since = ("", 0, 0), time.monotonic()
        while not self.is_ended:
            time.sleep(0.01)
            try:
                epoch, fence, version = self._link.fields("loop:orders", "epoch", "fence", "version")
            except FleetUnreachable:
                since = time.monotonic()
                continue
            self.longest_s = max(self.longest_s, time.monotonic() - since)
            if epoch is None or fence is None or version is None:
                continue
            now = (epoch.decode(), int(fence), int(version))
            if now == before:
                continue
            since = time.monotonic()
            self.seen += 1
            self.elections += now[:2] != before[:2]
            self.went_back += now[0] == before[0] and (now[1] < before[1] or now[2] < before[2])
            before = now


def most_in_a_minute(starts: list[float]) -> int:
    """The most starts in any half-open window of a minute."""
    window: deque[float] = deque()
    most = 0
    for at in sorted(starts):
        window.append(at)
        while window[0] <= at - MINUTE_S:
            window.popleft()
        most = max(most, len(window))
    return most


def leading(config: FleetConfig, loops: list[BaseProcess]) -> int | None:
    """Return which of the loops leads; None if none does."""
    link = RedisLink(config.url, config.name)
    try:
        found = link.get("loop:lock") or b""
    except FleetUnreachable:
        return None
    finally:
        link.close()
    return next((place for place, loop in enumerate(loops) if f":{loop.pid}:".encode() in found), None)


def kill(process: BaseProcess) -> None:
    """Kill it as `kill -9` does."""
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()


class Troubles:
    """What befalls the fleet's records while processes live.

    Args:
        config: the fleet's.
        rng: chooses.
    """

    def __init__(self, config: FleetConfig, rng: random.Random) -> None:
        self._config, self._rng = config, rng
        self._older: bytes | None = None
        self.counts = dict.fromkeys(("journal_locks", "money_losses", "older_sums", "rate_losses"), 0)

    def cause(self) -> None:
        """Cause one of them, while Redis answers."""
        kind = self._rng.choice(sorted(self.counts))
        with suppress(redis.RedisError), redis.Redis.from_url(self._config.url) as server:
            {
                "journal_locks": self._lock_the_journal,
                "money_losses": lambda: server.delete(KEYS + "money"),
                "older_sums": lambda: self._go_back(server),
                "rate_losses": lambda: server.delete(KEYS + "rates:east"),
            }[kind]()
            self.counts[kind] += 1

    def _lock_the_journal(self) -> None:
        with closing(sqlite3.connect(str(self._config.journal), timeout=5.0, isolation_level=None)) as journal:
            journal.execute("BEGIN IMMEDIATE")
            time.sleep(self._rng.uniform(1.5, 3.0))  # longer than the processes wait for it
            journal.execute("ROLLBACK")

    def _go_back(self, server: redis.Redis) -> None:
        """As when a replica that lags behind takes over, under the same run."""
        now = server.dump(KEYS + "money")
        if self._older is not None:
            server.restore(KEYS + "money", 0, self._older, replace=True)
        self._older = now


def chaos(kills: int, workers: int, cap_usd: float, limit: int, seed: int) -> dict[str, float]:
    """Kill so many times, and return what was counted."""
    rng, context = random.Random(seed), multiprocessing.get_context("fork")  # a worker is there at once, without imports
    with own_redis() as redis, tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        config = FleetConfig(url=redis.url, name="chaos", daily_usd={"acme": cap_usd}, journal=Path(folder) / "fleet.sqlite")

        def start() -> BaseProcess:
            process = context.Process(target=work, args=(config, limit, str(log), rng.randrange(2**32)), daemon=True)
            process.start()
            return process

        def start_loop() -> BaseProcess:
            process = context.Process(target=lead, args=(config,), daemon=True)
            process.start()
            return process

        fleet_workload()  # before the processes fork
        running, loops = [start() for _ in range(workers)], [start_loop() for _ in range(LOOPS)]
        redis_kills = leader_kills = 0
        troubles = Troubles(config, random.Random(seed + 1))
        watch = OrderWatch(config)
        watch.start()
        time.sleep(6.0)
        for _ in range(kills):
            time.sleep(rng.uniform(0.2, 1.0))
            if rng.random() < TROUBLE_SHARE:
                troubles.cause()
            if rng.random() < REDIS_SHARE:
                redis_kills += 1
                redis.kill()
                time.sleep(rng.uniform(0.0, 1.5))
                redis.start()
                continue
            leader = leading(config, loops) if rng.random() < LEADER_SHARE else None
            if leader is not None:
                leader_kills += 1
                kill(loops[leader])
                loops[leader] = start_loop()
                continue
            victim = rng.randrange(workers)
            kill(running[victim])
            running[victim] = start()
        watch.is_ended = True
        watch.join()
        for process in (*running, *loops):
            kill(process)
        lines = [line.split() for line in log.read_text().splitlines()]
    cost: dict[str, float] = {}
    for what, number, usd, _ in lines:
        if what in ("reserved", "paid"):
            cost[number] = float(usd)
    starts = [float(at) for what, _, _, at in lines if what == "started"]
    return {
        "kills": kills,
        "redis_kills": redis_kills,
        "leader_kills": leader_kills,
        "worker_kills": kills - redis_kills - leader_kills,
        **troubles.counts,
        "calls": len(starts),
        "refused": sum(what == "refused" for what, *_ in lines),
        "failed": sum(what == "failed" for what, *_ in lines),
        "calls_under_orders": sum(what == "obeyed" and int(version) > 0 for what, _, version, _ in lines),
        "orders": watch.seen,
        "leaders": watch.elections,
        "orders_of_a_replaced_leader": watch.went_back,
        "longest_without_new_orders_s": watch.longest_s,
        "spent_usd": sum(cost.values()),
        "cap_usd": cap_usd,
        "most_calls_in_a_minute": most_in_a_minute(starts),
        "limit": limit,
    }


def main() -> int:
    """Print what was counted; 1 if a cap or a limit was passed, a call failed, or a replaced leader was obeyed."""
    options = {
        "--kills": (200, ""),
        "--workers": (4, ""),
        "--cap": (3.0, "dollars of the tenant's day"),
        "--limit": (300, "calls a minute"),
        "--seed": (0, ""),
    }

    def measured(given: Options) -> dict[str, float]:
        return chaos(given.kills, given.workers, given.cap, given.limit, given.seed)

    return study(__doc__, options, measured, named, fails=broke)


def broke(found: dict[str, float]) -> bool:
    overspent, overrun = found["spent_usd"] > found["cap_usd"] + 1e-9, found["most_calls_in_a_minute"] > found["limit"]
    return bool(overspent or overrun or found["failed"] or found["orders_of_a_replaced_leader"])


if __name__ == "__main__":
    sys.exit(main())
