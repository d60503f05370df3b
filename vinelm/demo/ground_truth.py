"""The complete table of a demo, made beside everything else by a process of its own: the demo has two cores and a minute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Protocol

from vinelm.recorded_table import RecordedTable


class LoadProgress(Protocol):
    """Told how far a step is."""

    def __call__(self, done: float, total: float, detail: str = "") -> None:
        """``done`` of ``total``."""


class LoadedTruth(Protocol):
    """What the other process works on."""

    @property
    def workflow(self) -> Any:
        """The workflow."""

    @property
    def catalog(self) -> Any:
        """Its models."""

    @property
    def backends(self) -> Mapping[str, Any]:
        """By provider."""


TruthLoader = Callable[[], LoadedTruth]
"""Makes the workflow anew in another process; must survive pickling (a partial of a module's function does)."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A table under way."""

    future: Future[RecordedTable]

    def wait(self, step: LoadProgress) -> RecordedTable:
        """The table. What went wrong in the other process is raised here."""
        waited = 0
        while True:
            try:
                table = self.future.result(timeout=0.5)
            except NotYet:
                waited += 1
                step(0, 1, f"{waited / 2:.0f} s")
                continue
            step(1, 1)
            return table


@contextmanager
def table_beside(load: TruthLoader, request_ids: Sequence[str]) -> Iterator[Pending]:
    """Start the table of these requests: every path that either stop rule reaches, the truth that no profiler could afford.

    Starts a process, which ends with the block.
    """
    executor = ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"))
    try:
        yield Pending(executor.submit(_table, load, tuple(request_ids)))
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _table(load: TruthLoader, request_ids: tuple[str, ...]) -> RecordedTable:
    from vinelm.workflows.nl2sql import exact_table

    loaded = load()
    by_id = {request.id: request for request in loaded.workflow.requests}
    requests = [by_id[request_id] for request_id in request_ids]
    return exact_table(loaded.workflow, loaded.catalog, loaded.backends, requests, only_reached="either")
