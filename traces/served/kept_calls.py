"""Stores the answers of repeatable calls by digest, to answer equal calls."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Column, Float, MetaData, String, Table, inspect, select
from sqlalchemy.dialects.postgresql import insert

from vinelm.traces.databases import opening
from vinelm.traces.databases.address import StoreAddress
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.store.group_commit import GroupCommit
from vinelm.traces.store.store import ObservationStore

DAY_S = 86_400.0
AGE_S = 7 * DAY_S
"""The maximum age of a reused answer by default, in seconds."""

metadata = MetaData()
kept_calls = Table(
    "kept_calls",
    metadata,
    Column("digest", String, primary_key=True, comment="of who was asked, how it was set, and what it was asked"),
    Column("said", String, nullable=False, comment="the answer and what it took, JSON"),
    Column("kept_s", Float, nullable=False, comment="when it was answered, Unix time"),
    comment="Answers of calls that are repeatable. Made with the first of them.",
)


class KeptCalls:
    """A store's cached answers; see :class:`vinelm.backends.remote.equal_calls.EqualCalls`. Thread-safe.

    Args:
        store: The store; the caller must have locked it.
        age_s: The maximum age, in seconds, of answers that are used.
    """

    def __init__(self, store: ObservationStore, age_s: float = AGE_S) -> None:
        self._database, self._age_s = store.database, age_s
        self._commits = GroupCommit(store)
        with self._database.transaction() as connection:
            self._is_there = inspect(connection).has_table(kept_calls.name)

    def find(self, digest: str) -> str | None:
        """Return the stored answer of the call with this digest; None if no answer is stored, or the answer is too old."""
        if not self._is_there:
            return None
        query = select(kept_calls.c.said).where(kept_calls.c.digest == digest, kept_calls.c.kept_s >= time.time() - self._age_s)
        with self._database.transaction() as connection:
            found: str | None = connection.execute(query).scalar()
            return found

    def keep(self, digest: str, said: str) -> None:
        """Store ``said``, the answer of a call, by the call's digest, replacing an earlier answer. Durable when it returns."""
        self.keep_all([(digest, said)])

    def keep_all(self, answers: Iterable[tuple[str, str]]) -> None:
        """Store several (digest of a call, answer) pairs, replacing earlier answers. Durable when it returns."""
        rows = [{"digest": digest, "said": said, "kept_s": time.time()} for digest, said in dict(answers).items()]

        def write() -> None:
            self._database.require_held()
            with self._database.transaction() as connection:
                if not self._is_there:
                    metadata.create_all(connection)
                    self._is_there = True
                statement = insert(kept_calls)
                new = {name: statement.excluded[name] for name in ("said", "kept_s")}
                connection.execute(statement.on_conflict_do_update(index_elements=["digest"], set_=new), rows)

        if rows:
            self._commits.run(write)


@contextmanager
def kept_in(address: StoreAddress | None, own: ObservationStore, age_s: float) -> Iterator[KeptCalls]:
    """Yield the cached answers of the store at ``address``. The store is created if missing; only one run at a time can use it.

    If ``address`` is None, or the address of the run's own store ``own``, yield the answers in ``own``. Answers older than
    ``age_s`` seconds are not used.

    Raises:
        StoreError: The file is not a store, or another process has locked it.
    """
    if address is None or _is(address, own):
        yield KeptCalls(own, age_s)
        return
    is_there = opening.exists(address)
    store = ObservationStore.open(address) if is_there else ObservationStore.create(address, _nobodys())
    with store, store.exclusive():
        yield KeptCalls(store, age_s)


def _is(address: StoreAddress, own: ObservationStore) -> bool:
    place = own.database.path
    if isinstance(address, Path) and isinstance(place, Path):
        return address.resolve() == place.resolve()
    return address == place


def _nobodys() -> StoreIdentity:
    return StoreIdentity(
        workflow="(answers of calls)",
        template={},
        catalog={},
        dataset_digest="",
        fingerprint={},
        is_simulated=False,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
