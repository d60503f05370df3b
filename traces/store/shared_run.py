"""A run among others on one store in PostgreSQL: its lease, the units that it claims, and the rows that others write."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import cast

from sqlalchemy import text

from vinelm.errors import StoreError, VineLMError
from vinelm.rows.observation import Observation
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.databases.postgres import RENEW, RUN, Lease, PostgresDatabase
from vinelm.traces.databases.running_totals import LIVE, Totals, add_totals, are_right, corrected, totals
from vinelm.traces.store.rows import encode_prefix, read_rows
from vinelm.traces.store.store import ObservationStore, number_of

LEASE_S = 30.0
"""A run that has not renewed its lease for so long is taken for dead. Renewed three times as often."""
_SCHEMA = "(SELECT oid::integer FROM pg_namespace WHERE nspname = current_schema())"


class UnitTaken(VineLMError):
    """Another run executes the unit, or has written its row."""


class SharedRun:
    """A run that may work beside others. Made by :func:`shared_run`."""

    def __init__(self, store: ObservationStore, database: PostgresDatabase) -> None:
        self.store, self._database = store, database
        self._last_row = 0
        self._ended = threading.Event()
        self.run_id = self._join()
        self._lease = Lease(self.run_id, _owner(), LEASE_S)
        self._heart = threading.Thread(target=self._renew, name="vinelm lease", daemon=True)
        self._heart.start()

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Wait until no other run begins or ends, and yield whether others are at work. The store's identity is read again."""
        with self._database.one_at_a_time():
            # Read within the lock: another run may have grown the store since this one opened it.
            with self._database.transaction() as connection:
                value = connection.execute(_IDENTITY).scalar_one()
                self.store.identity = StoreIdentity.from_json(value)
                self.store.identity_id = number_of(connection, self.store.identity)
                live = set(connection.execute(LIVE).scalars())
            yield bool(live - {self.run_id})

    @contextmanager
    def writing(self) -> Iterator[Totals]:
        """Begin a transaction, or a part of one, which is undone if the block raises. Other runs wait: the totals are exact.

        Yields:
            What counts against the budgets of all runs before the block.
        """
        with self._database.transaction() as connection:
            found = self._database.lock_for_writing(connection, self._lease)
            # A savepoint: where this unit is refused, what the caller has written for others in its transaction stays.
            with connection.begin_nested():
                yield found

    def claim(self, request_id: str, prefix: Sequence[str]) -> None:
        """Claim a unit until the end of the caller's transaction (:meth:`writing`); :meth:`reserve` makes it last.

        What a dead run reserved for the unit counts at its bound.

        Raises:
            UnitTaken: a run that is alive has claimed it, or it has a row.
        """
        cell = {"request": request_id, "prefix": encode_prefix(prefix), "me": self.run_id}
        with self._database.transaction() as connection:
            connection.execute(_ADD_UNIT, cell)
            found = connection.execute(_CLAIM, cell).first()
            if found is None:
                raise UnitTaken("another run executes this unit")
            if found.entry_id is not None and found.run_id != self.run_id:
                connection.execute(_ABANDON, {"entry": found.entry_id})

    def reserve(self, request_id: str, prefix: Sequence[str], upper_usd: float, calls: int) -> int:
        """Reserve dollars and model calls for a unit, which is this run's from now on, and return the number of the entry."""
        values = {"request": request_id, "prefix": encode_prefix(prefix), "usd": upper_usd, "calls": calls, "me": self.run_id}
        with self._database.transaction() as connection:
            return int(connection.execute(_RESERVE, values).scalar_one())

    def totals(self) -> Totals:
        """Return what counts against the budgets of all runs."""
        with self._database.transaction() as connection:
            return totals(connection)

    def correct_totals(self) -> str | None:
        """Compare the running totals with the sums of the rows, and set them to these where they differ.

        Returns:
            What was wrong in one line; None if nothing was.
        """
        with self._database.transaction() as connection:
            # First without the lock: as a rule nothing is wrong, and nobody has to wait.
            if are_right(connection):
                return None
        with self._database.transaction() as connection:
            self._database.lock_for_writing(connection, self._lease)
            before = corrected(connection)
            now = totals(connection)
        if before is None:
            return None
        return (
            f"{self.store.path}: its running totals said ${before.usd:.6f} and {before.calls:,} calls, its rows say "
            f"${now.usd:.6f} and {now.calls:,}: the rows count"
        )

    def new_rows(self) -> list[Observation]:
        """Return the rows since the last call in the order in which they were written, own ones included; at first all."""
        with self._database.transaction() as connection:
            last = int(connection.execute(_LAST_ROW).scalar_one())
            if last <= self._last_row:
                return []
            rows = list(read_rows(connection, after=self._last_row))
        self._last_row = last
        return rows

    def leave(self) -> None:
        """End the lease; what the run has claimed and not executed is free for others. Idempotent."""
        self._ended.set()
        # Before the lease ends: a late renewal would write it again.
        self._heart.join()
        with suppress(StoreError), self._database.transaction() as connection:
            connection.execute(_LEAVE, {"me": self.run_id})
            connection.execute(text(f"SELECT pg_advisory_unlock({_SCHEMA}, {RUN + self.run_id})"))
            connection.execute(_SET_RUN, {"run": ""})

    def _join(self) -> int:
        with self._database.transaction() as connection:
            run_id = int(connection.execute(_JOIN, {"owner": _owner(), "lease": LEASE_S}).scalar_one())
            add_totals(connection)  # the store may be older
            connection.execute(text(f"SELECT pg_advisory_lock({_SCHEMA}, {RUN + run_id})"))
            connection.execute(_SET_RUN, {"run": str(run_id)})
            return run_id

    def _renew(self) -> None:
        """Renew the lease until the run ends, as its writes do. Where the server is away, its next write finds out."""
        while not self._ended.wait(self._lease.seconds / 3):
            with suppress(StoreError), self._database.transaction() as connection:
                connection.execute(RENEW, self._lease._asdict())


def _owner() -> str:
    return f"pid {os.getpid()} on {socket.gethostname()}"


@contextmanager
def shared_run(store: ObservationStore) -> Iterator[SharedRun | None]:
    """Hold a store for a run: beside others where it is in PostgreSQL, else alone (None).

    Raises:
        StoreError: another run holds the store, and alone.
    """
    if not store.database.is_shareable:
        with store.exclusive():
            yield None
        return
    database = cast("PostgresDatabase", store.database)
    with database.held(is_shared=True):
        run = SharedRun(store, database)
        try:
            yield run
        finally:
            run.leave()


_IDENTITY = text("SELECT value FROM meta WHERE key = 'identity'")
_JOIN = text(
    "INSERT INTO runs (owner, expires_at) VALUES (:owner, clock_timestamp() + make_interval(secs => :lease)) RETURNING run_id"
)
_SET_RUN = text("SELECT set_config('vinelm.run', :run, false)")
_LEAVE = text("DELETE FROM runs WHERE run_id = :me")
_ADD_UNIT = text("INSERT INTO units (request_id, prefix) VALUES (:request, :prefix) ON CONFLICT DO NOTHING")
_FREE = f"(u.run_id IS NULL OR u.run_id = :me OR u.run_id NOT IN ({LIVE.text}))"
_CLAIM = text(
    "SELECT u.run_id, u.entry_id FROM units u LEFT JOIN observations o ON o.request_id = u.request_id AND o.prefix = u.prefix "
    "WHERE u.request_id = :request AND u.prefix = :prefix AND o.row_id IS NULL AND FREE FOR UPDATE OF u SKIP LOCKED".replace(
        "FREE", _FREE
    )
)
_RESERVE = text(
    "WITH entry AS (INSERT INTO ledger (request_id, prefix, reserved_usd, is_abandoned, calls) "
    "VALUES (:request, :prefix, :usd, false, :calls) RETURNING entry_id), "
    "taken AS (UPDATE units SET run_id = :me, entry_id = (SELECT entry_id FROM entry) "
    "WHERE request_id = :request AND prefix = :prefix) SELECT entry_id FROM entry"
)
_ABANDON = text(
    "UPDATE ledger SET settled_usd = reserved_usd, is_abandoned = true WHERE entry_id = :entry AND settled_usd IS NULL"
)
_LAST_ROW = text("SELECT coalesce(max(row_id), 0) FROM observations")
