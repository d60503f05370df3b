"""Kills serving processes and their Redis at random, and counts what was spent and called.

Worker processes make calls within a fleet: each call reserves dollars of one tenant's day and waits for a rate limit, as a real
one does, but sends nothing. Every start and every dollar is written to a file before it counts. Meanwhile processes and Redis,
which starts again empty, are killed with ``kill -9``. At the end: dollars at most the cap, calls in any minute at most the
limit. A call that was under way in a killed process counts at its upper bound: it may have been billed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import uuid
import warnings
from collections import deque
from pathlib import Path

from redis_for_bench import own_redis
from result_files import add_results_option, provenance, write_results

from vinelm.backends import EngineRateLimiter, RateLimits
from vinelm.controller import Fleet, FleetConfig
from vinelm.errors import CallRefused
from vinelm.observation import Usage

UPPER_USD, MINUTE_S = 0.01, 60.0
REDIS_SHARE = 0.05
"""Part of the kills that concern Redis. After each no new rates are granted for a minute, so that many would leave no calls."""


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
        with limiter.admit(1, time.sleep):
            write("started", number, 0, time.monotonic())  # one clock for all processes of a machine
            time.sleep(rng.expovariate(1 / 0.02))
        usd = UPPER_USD * rng.random()
        write("paid", number, usd, time.monotonic())
        permit.settle(Usage(model="m", cost_usd=usd, latency_s=0.0))


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


def chaos(kills: int, workers: int, cap_usd: float, limit: int, seed: int) -> dict[str, float]:
    """Kill so many times, and return what was counted."""
    rng, context = random.Random(seed), multiprocessing.get_context("fork")  # a worker is there at once, without imports
    with own_redis() as redis, tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        config = FleetConfig(url=redis.url, name="chaos", daily_usd={"acme": cap_usd}, journal=Path(folder) / "fleet.sqlite")

        def start() -> multiprocessing.process.BaseProcess:
            process = context.Process(target=work, args=(config, limit, str(log), rng.randrange(2**32)), daemon=True)
            process.start()
            return process

        running, redis_kills = [start() for _ in range(workers)], 0
        time.sleep(6.0)
        for _ in range(kills):
            time.sleep(rng.uniform(0.2, 1.0))
            if rng.random() < REDIS_SHARE:
                redis_kills += 1
                redis.kill()
                time.sleep(rng.uniform(0.0, 1.5))
                redis.start()
                continue
            victim = rng.randrange(workers)
            os.kill(running[victim].pid or 0, signal.SIGKILL)
            running[victim].join()
            running[victim] = start()
        for process in running:
            process.kill()
            process.join()
        lines = [line.split() for line in log.read_text().splitlines()]
    cost: dict[str, float] = {}
    for what, number, usd, _ in lines:
        if what in ("reserved", "paid"):
            cost[number] = float(usd)
    starts = [float(at) for what, _, _, at in lines if what == "started"]
    return {
        "kills": kills,
        "redis_kills": redis_kills,
        "calls": len(starts),
        "refused": sum(what == "refused" for what, *_ in lines),
        "spent_usd": sum(cost.values()),
        "cap_usd": cap_usd,
        "most_calls_in_a_minute": most_in_a_minute(starts),
        "limit": limit,
    }


def main() -> int:
    """Print what was counted; 1 if a cap or a limit was passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--cap", type=float, default=3.0, help="dollars of the tenant's day")
    parser.add_argument("--limit", type=int, default=300, help="calls a minute")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    add_results_option(parser)
    options = parser.parse_args()
    made = provenance(options)
    found = chaos(options.kills, options.workers, options.cap, options.limit, options.seed)
    if options.results:
        write_results(options.results, made, found)
    print(json.dumps(found) if options.json else "\n".join(f"{name:24} {value:g}" for name, value in found.items()))
    return int(found["spent_usd"] > found["cap_usd"] + 1e-9 or found["most_calls_in_a_minute"] > found["limit"])


if __name__ == "__main__":
    sys.exit(main())
