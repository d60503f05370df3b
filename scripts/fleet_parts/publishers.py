"""64 publishers in 4 processes: a busy fleet of 131,072 live invocations, whose snapshots go through a real Redis."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from vinelm.controller import RedisLink
from vinelm.controller.fleet.live_invocations import InvocationStart, LiveInvocations
from vinelm.controller.fleet.loop.standing_orders import StandingOrders
from vinelm.controller.fleet.member import FleetMember

PROCESSES, PUBLISHERS, ROWS = 4, 16, 2048
"""Processes, publishers in each, live invocations of each publisher."""
ENGINES = tuple(f"engine-{i}" for i in range(16))
EVERY_S = 0.25


def live_rows(process: str, rows: int, seed: int) -> LiveInvocations:
    """A table of live invocations as a busy process has it."""
    live, rng = LiveInvocations(process), np.random.default_rng(seed)
    for i in range(rows):
        engine, waited = ENGINES[int(rng.integers(len(ENGINES)))], float(rng.exponential(2.0))
        start = InvocationStart(
            session=int(rng.integers(2**63)),
            tenant=f"tenant-{int(rng.integers(20))}",
            stage=f"stage-{i % 4}",
            node=int(rng.integers(100_000)),
            engine=engine,
            elapsed_s=waited,
            deadline_s=30.0,
            rest_s=float(rng.exponential(5.0)),
            rest_usd=float(rng.exponential(0.01)),
        )
        slot = live.begin(start)
        if rng.random() < 0.3:
            live.queue(slot)
    return live


def publish_all(url: str, name: str, process: int, *, stop: Any, ready: Any, times: Any) -> None:
    """One process: publish for its publishers every 250 ms until told to stop; then hand over the times in seconds."""
    members = []
    for i in range(PUBLISHERS):
        number = process * PUBLISHERS + i
        member = FleetMember(RedisLink(url, name), live_rows(f"p{number:03}", ROWS, number))
        member.chores.append(StandingOrders(member.live.process, _nothing))  # reads what the global loop says, if one runs
        members.append(member)
    took = []
    while not stop.is_set():
        began = time.perf_counter()
        for member in members:
            before = time.perf_counter()
            member.round()
            took.append(time.perf_counter() - before)
        ready.set()
        stop.wait(max(EVERY_S - (time.perf_counter() - began), 0.0))
    times.put(took)


def _nothing() -> None:
    """No call waits here, so that orders which change have nothing to put in order."""


@contextmanager
def publishers(url: str, name: str) -> Iterator[list[float]]:
    """Run the publishers during the block; the list has the seconds of each round of each publisher after it."""
    context, took = multiprocessing.get_context("spawn"), []
    stop, times = context.Event(), context.Queue()
    ready = [context.Event() for _ in range(PROCESSES)]
    workers = [
        context.Process(
            target=publish_all, args=(url, name, i), kwargs={"stop": stop, "ready": ready[i], "times": times}, daemon=True
        )
        for i in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    try:
        for event in ready:
            event.wait()
        yield took
    finally:
        stop.set()
        for _ in workers:
            took.extend(times.get())
        for worker in workers:
            worker.join()
