"""The complete table of a demo's outcomes, computed in a second process while the demo profiles and serves."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Protocol

from vinelm.recorded_table import RecordedTable


class StepProgress(Protocol):
    """Callback for the progress of one step."""

    def __call__(self, done: float, total: float, detail: str = "") -> None:
        """Report that ``done`` of ``total`` is finished; ``detail`` is a short text beside the bar."""


TableMaker = Callable[[Sequence[str]], RecordedTable]
"""Computes the complete table of the requests with these ids, in their order. It runs in another process, so it must be
picklable: a module's function, or a ``functools.partial`` of one."""


@dataclass(frozen=True, slots=True)
class PendingTable:
    """A table that is being computed."""

    future: Future[RecordedTable]

    def wait(self, step: StepProgress) -> RecordedTable:
        """Wait for the table and return it. An exception of the other process is raised here."""
        half_seconds = 0
        while True:
            try:
                table = self.future.result(timeout=0.5)
            except NotYet:
                half_seconds += 1
                step(0, 1, f"{half_seconds / 2:.0f} s")
                continue
            step(1, 1)
            return table


ALLOCATIONS = 50_000
"""Allocations between two runs of Python's collector while a demo runs. Nearly all it makes is freed without it, and its usual
runs, every 700, take a tenth of the time."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python's garbage collector run rarely in this block."""
    before = gc.get_threshold()
    gc.set_threshold(ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def table_in_background(make_table: TableMaker, request_ids: Sequence[str]) -> Iterator[PendingTable]:
    """Start to compute the table of these requests in a process of its own, which ends with the block."""
    rarely = partial(gc.set_threshold, ALLOCATIONS)
    executor = ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"), initializer=rarely)
    try:
        yield PendingTable(executor.submit(make_table, tuple(request_ids)))
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
