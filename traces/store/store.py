"""The observation store: every row that was bought, the checkpoints to go on from, and the ledger."""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from sqlalchemy import ColumnElement, Table, and_, bindparam, case, delete, func, literal_column, select, update
from sqlalchemy.dialects.sqlite import insert

from vinelm.errors import StoreError
from vinelm.observation import Observation
from vinelm.traces.store import schema
from vinelm.traces.store.database import Database, read_meta
from vinelm.traces.store.identity import StoreIdentity
from vinelm.traces.store.lock import run_lock
from vinelm.traces.store.migrations import migrate
from vinelm.traces.store.recovery import OPEN_RUN, recover
from vinelm.traces.store.rows import insert_rows, read_rows, values_of
from vinelm.traces.store.schema import SCHEMA_VERSION, encode_prefix
from vinelm.workflow import Request

Prefix = tuple[str, ...]


def _cell(table: Table) -> ColumnElement[bool]:
    return and_(table.c.request_id == bindparam("request"), table.c.prefix == bindparam("prefix"))


# The statements of every unit, built once: building one takes longer than running it.
_ADD_ROW = insert(schema.observations).on_conflict_do_nothing()
_ADD_BLOB = insert(schema.blobs).on_conflict_do_nothing()
_ADD_CHECKPOINT = insert(schema.checkpoints)
_HAS_ROW = select(schema.observations.c.row_id).where(_cell(schema.observations))
_CHECKPOINT = (
    select(schema.blobs.c.digest, schema.blobs.c.content)
    .select_from(schema.checkpoints.join(schema.blobs, schema.checkpoints.c.digest == schema.blobs.c.digest))
    .where(_cell(schema.checkpoints))
)
_RESERVE = insert(schema.ledger)
_SETTLE = update(schema.ledger).where(schema.ledger.c.entry_id == bindparam("entry")).values(settled_usd=bindparam("paid"))


@dataclass(frozen=True, slots=True)
class Spend:
    """Totals of a group of rows: how many, their model calls, dollars (tools included), and how many failed."""

    rows: int
    calls: int
    cost_usd: float
    failures: int


class ObservationStore:
    """One workflow's observations in one SQLite file. Every method that writes is durable when it returns.

    Make one with :meth:`create`, :meth:`open` or :meth:`open_or_create`. May be shared by the threads of one process.
    """

    def __init__(self, database: Database, identity: StoreIdentity) -> None:
        self._database = database
        self.identity = identity

    # -- opening -----------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: str | Path, identity: StoreIdentity, *, shown_as: Path | None = None) -> Self:
        """A new, empty store. :class:`StoreError` if the file is there already or its folder is not.

        ``shown_as`` is the path that errors name, where the file will be moved once it is filled.
        """
        path = Path(path)
        if _is_made(path):
            raise StoreError(f"{path}: exists already: open it, or give another path")
        if not path.parent.is_dir():
            raise StoreError(f"{path}: the folder {path.parent} does not exist: make it first")
        database = Database(path, shown_as=shown_as)
        with database.transaction() as connection:
            database.create_tables(schema.metadata, connection)
            rows = {"schema_version": str(SCHEMA_VERSION), "identity": identity.to_json()}
            connection.execute(insert(schema.meta), [{"key": key, "value": value} for key, value in rows.items()])
        return cls(database, identity)

    @classmethod
    def open(cls, path: str | Path, identity: StoreIdentity | None = None) -> Self:
        """The store at ``path``; with an ``identity``, only if it is this workflow's. An older version is brought up to date.

        :class:`StoreError`, and nothing written, if it is missing, not a store, of a newer version, another workflow's, or a
        copy made while a run was writing that lacks the rows in the log.
        """
        path = Path(path)
        if not path.exists():
            raise StoreError(f"{path}: no such store: make one with `vinelm profile`")
        meta = read_meta(path)
        if meta is None:
            raise StoreError(f"{path}: an empty store: make one with `vinelm profile`")
        found = _identity(path, meta)
        difference = found.difference(identity) if identity else None
        if difference:
            raise StoreError(f"{path}: {difference}: use another store, or undo the change", code="store-mismatch")
        if int(meta["schema_version"]) < SCHEMA_VERSION:
            migrate(path)
        if OPEN_RUN in meta:
            recover(path)
        return cls(Database(path), found)

    @classmethod
    def open_or_create(cls, path: str | Path, identity: StoreIdentity) -> Self:
        """The store at ``path``, made if it is not there: what a run that may be a second one wants."""
        path = Path(path)
        return cls.open(path, identity) if _is_made(path) else cls.create(path, identity)

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._database.path

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def database(self) -> Database:
        """The file behind it, for the other modules of this part."""
        return self._database

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the store for one run; others may read. :class:`StoreError` names the process that holds it already.

        The file itself says meanwhile that a run is on, so that a copy without its log is recognised (``recovery``).
        """
        with run_lock(self.path):
            with self._database.transaction() as connection:
                started = datetime.now(UTC).isoformat(timespec="seconds")
                connection.execute(insert(schema.meta).prefix_with("OR REPLACE"), {"key": OPEN_RUN, "value": started})
            self._database.fold_log()
            try:
                yield
            finally:
                with suppress(StoreError), self._database.transaction() as connection:  # the next opening recovers
                    connection.execute(delete(schema.meta).where(schema.meta.c.key == OPEN_RUN))

    # -- requests ----------------------------------------------------------------------------------------------

    def register(self, requests: Iterable[Request]) -> None:
        """Note the requests that a run samples from. :class:`StoreError` if one changed since an earlier run."""
        self.register_digests({request.id: request.digest() for request in requests})

    def register_digests(self, wanted: Mapping[str, str]) -> None:
        """As :meth:`register`, from request id to the digest of its dataset row."""
        with self._database.transaction() as connection:
            rows = connection.execute(select(schema.requests.c.request_id, schema.requests.c.digest))
            known = {row.request_id: row.digest for row in rows}
            for request_id, digest in wanted.items():
                if known.get(request_id, digest) != digest:
                    raise StoreError(
                        f"{self.path}: the request {request_id!r} changed since it was profiled: give another --store"
                    )
            new = [{"request_id": key, "digest": digest} for key, digest in wanted.items() if key not in known]
            if new:
                connection.execute(insert(schema.requests), new)

    def request_ids(self) -> list[str]:
        """Every request that some run sampled from, in the order they were registered."""
        with self._database.transaction() as connection:
            return list(
                connection.execute(select(schema.requests.c.request_id).order_by(literal_column("requests.rowid"))).scalars()
            )

    # -- rows --------------------------------------------------------------------------------------------------

    def add(self, observation: Observation, checkpoint: bytes | None = None, *, reservation: int | None = None) -> None:
        """Keep one row, the state to go on from, and the settlement of its reservation, all or nothing.

        :class:`StoreError` if the cell has a row already.
        """
        values = values_of(observation)
        prefix = values["prefix"]
        with self._database.transaction() as connection:
            if not connection.execute(_ADD_ROW, values).rowcount:
                cell = f"request {observation.request_id!r}, prefix {'/'.join(observation.prefix)}"
                raise StoreError(f"{self.path}: {cell}: this cell has a row already: is another run writing here?")
            if checkpoint is not None:
                digest = hashlib.sha256(checkpoint).hexdigest()
                connection.execute(_ADD_BLOB, {"digest": digest, "content": zlib.compress(checkpoint)})
                connection.execute(_ADD_CHECKPOINT, {"request_id": observation.request_id, "prefix": prefix, "digest": digest})
            if reservation is not None:
                paid = observation.cost_usd + observation.tool_cost_usd
                connection.execute(_SETTLE, {"entry": reservation, "paid": paid})

    def add_many(self, observations: Iterable[Observation]) -> int:
        """Keep rows that were paid for elsewhere, each with its price in the ledger, all or nothing; how many.

        :class:`StoreError` if a cell has a row already.
        """
        try:
            with self._database.transaction() as connection:
                return insert_rows(connection, observations)
        except StoreError as error:
            if isinstance(error.__cause__, sqlite3.IntegrityError):
                raise StoreError(
                    f"{self.path}: a cell of these has a row already: keep one row per request and prefix"
                ) from error
            raise

    def observations(self) -> list[Observation]:
        """All rows, in the order they were bought. About a second for 100,000."""
        with self._database.transaction() as connection:
            return list(read_rows(connection))

    def note_source(self, kind: Literal["import", "merge"], name: str, digest: str, row_count: int) -> None:
        """Keep where rows came from that no run on this file bought."""
        values = {"kind": kind, "name": name, "digest": digest, "row_count": row_count}
        values["added_at"] = datetime.now(UTC).isoformat(timespec="seconds")
        with self._database.transaction() as connection:
            connection.execute(insert(schema.sources), values)

    def has(self, request_id: str, prefix: Sequence[str]) -> bool:
        """The cell has a row."""
        cell = {"request": request_id, "prefix": encode_prefix(prefix)}
        with self._database.transaction() as connection:
            return connection.execute(_HAS_ROW, cell).first() is not None

    def __len__(self) -> int:
        with self._database.transaction() as connection:
            return int(connection.execute(select(func.count()).select_from(schema.observations)).scalar_one())

    def checkpoint(self, request_id: str, prefix: Sequence[str]) -> bytes | None:
        """The serialized state after that prefix; None if none is kept. :class:`StoreError` if it is damaged."""
        cell = {"request": request_id, "prefix": encode_prefix(prefix)}
        with self._database.transaction() as connection:
            row = connection.execute(_CHECKPOINT, cell).first()
        if row is None:
            return None
        try:
            content = zlib.decompress(row.content)
        except zlib.error:
            content = b""
        if hashlib.sha256(content).hexdigest() != row.digest:
            raise StoreError(f"{self.path}: request {request_id!r}, prefix {'/'.join(prefix)}: the checkpoint is damaged")
        return content

    # -- money -------------------------------------------------------------------------------------------------

    def reserve(self, request_id: str, prefix: Sequence[str], upper_usd: float) -> int:
        """Set dollars aside for a unit that is about to run; the entry's number, for :meth:`add` or :meth:`abandon`."""
        entry = {
            "request_id": request_id,
            "prefix": encode_prefix(prefix),
            "reserved_usd": upper_usd,
            "settled_usd": None,
            "is_abandoned": False,
        }
        with self._database.transaction() as connection:
            return int(connection.execute(_RESERVE, entry).lastrowid)

    def settle(self, reservation: int, cost_usd: float) -> None:
        """Close an entry without a row, at what it cost."""
        with self._database.transaction() as connection:
            connection.execute(_SETTLE, {"entry": reservation, "paid": cost_usd})

    def abandon_open(self) -> int:
        """Close the entries of units that never came back, at their upper bound: the call may have been made and billed.

        How many there were. Only for a run that holds the store (:meth:`exclusive`).
        """
        gone = {"settled_usd": schema.ledger.c.reserved_usd, "is_abandoned": True}
        with self._database.transaction() as connection:
            return connection.execute(update(schema.ledger).where(schema.ledger.c.settled_usd.is_(None)).values(gone)).rowcount

    def committed_usd(self) -> float:
        """Dollars spent, plus those set aside for units in flight."""
        paid = func.sum(func.coalesce(schema.ledger.c.settled_usd, schema.ledger.c.reserved_usd))
        with self._database.transaction() as connection:
            return float(connection.execute(select(paid)).scalar_one() or 0.0)

    def spend(self, by: Literal["model", "depth", "stage"]) -> dict[str | int, Spend]:
        """Totals of the rows by model, depth or stage."""
        table = schema.observations
        group = table.c[by]
        cost = func.sum(table.c.cost_usd + table.c.tool_cost_usd)
        failed = func.sum(case((table.c.failure.is_not(None), 1), else_=0))
        query = select(group, func.count(), func.sum(table.c.calls), cost, failed).group_by(group).order_by(group)
        with self._database.transaction() as connection:
            return {row[0]: Spend(int(row[1]), int(row[2]), float(row[3]), int(row[4])) for row in connection.execute(query)}


def _is_made(path: Path) -> bool:
    return path.exists() and read_meta(path) is not None


def _identity(path: Path, meta: dict[str, str]) -> StoreIdentity:
    """What the file says it is; :class:`StoreError` if it is no store, or one that this version cannot read."""
    try:
        version = int(meta["schema_version"])
        if version > SCHEMA_VERSION:
            found = f"store version {version}, known is {SCHEMA_VERSION}"
            raise StoreError(f"{path}: written by a newer VineLM ({found}): upgrade, or give another path")
        return StoreIdentity.from_json(meta["identity"])
    except (KeyError, ValueError, TypeError) as error:
        raise StoreError(f"{path}: a SQLite file, but not an observation store: give another path") from error
