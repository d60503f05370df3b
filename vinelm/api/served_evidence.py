"""Writes rows of served requests (a row per call) to a store, and reports drift: that the trie no longer fits them."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock

from vinelm.catalog import Catalog
from vinelm.clock import Clock
from vinelm.controller.session.request_rows import InFlight, RequestRows
from vinelm.errors import ConfigError
from vinelm.estimator import DriftMonitor, Moved
from vinelm.foreign_code import answered
from vinelm.requests.names import scoped, unscoped
from vinelm.rows.observation import Observation
from vinelm.telemetry import DriftEvent, ObserverGroup
from vinelm.template import Stage, Template
from vinelm.traces import ServedStore, StoreIdentity
from vinelm.traces.served.writer import EvidenceWriter, Feedback
from vinelm.trie.annotated_trie import AnnotatedTrie

_AT = "%Y%m%dT%H%M%S"
OnDrift = Callable[[Moved], None]
"""Called in the writer's thread with each quantity that has moved, once."""


@dataclass(frozen=True)
class EvidenceConfig:
    """The settings for keeping rows of planned requests: the store, and the function that is notified of drift.

    Args:
        store: the store that the rows are written to, created if it does not exist. Its folder must exist.
        on_drift: called in a separate thread with each value of the trie (a cost, a time or a rate) that no longer fits the
            served requests; None for no call.
    """

    store: str | Path
    on_drift: OnDrift | None = None


class ServedEvidence:
    """Keeps the rows of planned requests, and compares them with the trie if drift is watched. Thread-safe.

    Args:
        kept: the store of the rows, and the function that is notified of drift.
        annotated: the trie that serves.
        observers: notified of drift.

    Attributes:
        writer: counts the rows that are written, dropped and waiting.

    Raises:
        ConfigError: the folder does not exist.
        StoreError: the file cannot be written, or is no store of this workflow.
    """

    def __init__(
        self,
        kept: EvidenceConfig,
        annotated: AnnotatedTrie,
        observers: ObserverGroup,
    ) -> None:
        path = Path(kept.store)
        if not path.absolute().parent.is_dir():
            raise ConfigError(f"evidence={str(path)!r}: the folder {path.absolute().parent} does not exist: create it first")
        self._observers, self._on_drift = observers, kept.on_drift
        self._running: dict[str, list[RequestRows]] = {}
        self._lock = Lock()
        self._pid = os.getpid()
        identity = served_identity(annotated)
        ServedStore(path, identity).close()  # refuse an unusable file now, not later in a log
        self.writer = EvidenceWriter(path, identity, on_rows=self._compare, on_end=self._finish_all)
        self.follow(annotated)

    def follow(self, annotated: AnnotatedTrie) -> None:
        """Compare the served rows with ``annotated`` from now on, since this trie now serves."""
        self._template = annotated.template.base
        self.writer.identity = served_identity(annotated)
        self._in_flight = InFlight({model.name: model.engine for model in annotated.catalog.models})
        self._monitor = DriftMonitor(annotated)

    def request(self, run_id: str | None, clock: Clock, *, tenant: str = "") -> RequestRows:
        """Return the object that collects the rows of a new request of this tenant. Without ``run_id``, the request gets a
        name from :func:`new_run_id`.
        """
        if self._pid != os.getpid():  # requests in progress belong to the parent process
            self._pid, self._running = os.getpid(), {}
        run_id = run_id or new_run_id()
        name = scoped(run_id, tenant)
        made = RequestRows(run_id, self._template, self.writer.put, self._in_flight, clock.now, request_id=name)
        self.writer.start()
        with self._lock:
            self._running.setdefault(name, []).append(made)
        return made

    def end_with(self, session: object, rows: RequestRows) -> None:
        """Arrange that a request's rows are completed, in the writer's thread, once the object ``session`` has been
        garbage-collected.
        """
        weakref.finalize(session, self.writer.defer, partial(self._finish, rows)).atexit = False

    def _finish(self, rows: RequestRows) -> None:
        rows.close()
        with self._lock:
            left = [one for one in self._running.pop(rows.request_id, []) if one is not rows]
            if left:
                self._running[rows.request_id] = left

    def _finish_all(self) -> None:
        """Complete the rows of all requests in progress in this process."""
        if self._pid == os.getpid():
            with self._lock:
                running = [one for some in self._running.values() for one in some]
            for rows in running:
                self._finish(rows)

    def feedback(self, request_id: str, success: bool | float, caller: str = "") -> None:
        """Record the score in [0, 1] of a request's last answer, and the caller who gives it."""
        with self._lock:
            running = list(self._running.get(request_id, ()))
        for rows in running:
            rows.close()
        self.writer.put(Feedback(request_id, success, caller))

    def close(self) -> bool:
        """Write the remaining rows; return False if some are lost."""
        self._finish_all()
        return self.writer.close()

    def _compare(self, rows: Sequence[Observation]) -> None:
        if self._on_drift is None and not self._observers.observers:
            return
        monitor = self._monitor
        for row in rows:
            for moved in monitor.add(row):
                self._tell(moved)

    def _tell(self, moved: Moved) -> None:
        self._observers.drifted(
            DriftEvent(
                stage=moved.stage, model=moved.model, quantity=moved.quantity, direction=moved.direction, path=moved.path,
                annotated=moved.annotated, seen=moved.seen,
            )
        )  # fmt: skip
        if self._on_drift is not None:
            answered(partial(self._on_drift, moved), None)


def served_identity(annotated: AnnotatedTrie) -> StoreIdentity:
    """Return the identity (workflow, models and data) of a store for the rows of requests that this trie serves."""
    return StoreIdentity(
        workflow=str(annotated.meta.get("workflow", "served")),
        template=annotated.template.to_dict(),
        catalog=annotated.catalog.to_dict(),
        dataset_digest="served",
        fingerprint={},
        is_simulated=bool(annotated.meta.get("is_simulated", False)),
        created_at=_today(),
    )


def unplanned_identity(catalog: Catalog, template: Template | None, *, is_simulated: bool) -> StoreIdentity:
    """Return the identity (workflow, models and data) of a store for an application without a trie.

    Args:
        catalog: the application's models.
        template: the shape of the application's workflow; None if it is unknown.
        is_simulated: whether some models are simulated.
    """
    shape = template or Template((Stage("model"),))
    return StoreIdentity(
        workflow="served",
        template=shape.bind(tuple(catalog)).to_dict(),
        catalog=catalog.to_dict(),
        dataset_digest="served",
        fingerprint={},
        is_simulated=is_simulated,
        created_at=_today(),
    )


def _today() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def new_run_id() -> str:
    """Return a unique name that sorts by time: ``20260102T030405-`` and twelve random digits."""
    return f"{datetime.now(UTC):{_AT}}-{secrets.token_hex(6)}"


def calls_per_hour(run_ids: Collection[str]) -> float | None:
    """Return the requests per hour, from the times in names made by :func:`new_run_id`; None if the names have no time."""
    try:
        at = [datetime.strptime(unscoped(run_id).partition("-")[0], _AT).replace(tzinfo=UTC) for run_id in run_ids]
    except ValueError:  # the application names its requests itself
        return None
    hours = (max(at) - min(at)).total_seconds() / 3600.0 if at else 0.0
    return (len(at) - 1) / hours if hours > 0.0 else None
