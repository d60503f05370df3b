"""The observation store: recorded results, checkpoints of the workflow state, and the ledger of spending."""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Table,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from vinelm.errors import StoreError
from vinelm.io.frames import data_frame
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Cell, Observation
from vinelm.traces.databases import opening, schema
from vinelm.traces.databases.address import PostgresUrl, StoreAddress, address_of
from vinelm.traces.databases.database import Database
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.store.checkpoints import ELSEWHERE, CheckpointPlace, unpacked
from vinelm.traces.store.rows import cell_name, encode_prefix, insert_rows, read_rows, values_of

if TYPE_CHECKING:
    import pandas


def _cell(table: Table) -> ColumnElement[bool]:
    return and_(table.c.request_id == bindparam("request"), table.c.prefix == bindparam("prefix"))


# Built once, since building a statement takes longer than running it.
_ADD_ROW = insert(schema.observations).on_conflict_do_nothing().execution_options(preserve_rowcount=True)
_ADD_BLOB = insert(schema.blobs).on_conflict_do_nothing()
_ADD_CHECKPOINT = insert(schema.checkpoints)
_HAS_ROW = select(schema.observations.c.row_id).where(_cell(schema.observations))
_CHECKPOINT = (
    select(schema.blobs.c.digest, schema.blobs.c.content)
    .select_from(schema.checkpoints.join(schema.blobs, schema.checkpoints.c.digest == schema.blobs.c.digest))
    .where(_cell(schema.checkpoints))
)
_SET_INPUTS = (
    update(schema.requests)
    .where(schema.requests.c.request_id == bindparam("request"), schema.requests.c.input_digest.is_(None))
    .values(input_digest=bindparam("inputs"))
)
_META = select(schema.meta.c.value).where(schema.meta.c.key == bindparam("name"))
_RESERVE = insert(schema.ledger)
_RAISE = update(schema.ledger).where(schema.ledger.c.entry_id == bindparam("entry")).values(reserved_usd=bindparam("upper"))
_SETTLE = update(schema.ledger).where(schema.ledger.c.entry_id == bindparam("entry")).values(settled_usd=bindparam("paid"))
_SETTLE_AS = _SETTLE.values(request_id=bindparam("request"))


@dataclass(frozen=True, slots=True)
class Spend:
    """Totals of a group of rows: the numbers of rows, model calls and failed rows, and the cost in dollars, tools included."""

    rows: int
    calls: int
    cost_usd: float
    failures: int


class ObservationStore:
    """The recorded results (observations) of one workflow, in one SQLite file or in a PostgreSQL database.

    Open a store with :meth:`open`, :meth:`create` or :meth:`open_or_create`, and use it as a context manager. Writes are
    durable when the method returns. Threads of a process may share a store; several processes may read while one process
    writes.
    """

    def __init__(self, database: Database, identity: StoreIdentity, identity_id: int = 1) -> None:
        self._database = database
        self.identity = identity
        self.identity_id = identity_id
        """The number of the store's identity in the table ``identities``, which is stored with each new row."""
        self._place: CheckpointPlace | Literal["unread"] | None = "unread"
        self._is_together = False

    # -- opening -----------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: str | Path | PostgresUrl, identity: StoreIdentity, *, shown_as: Path | None = None) -> Self:
        """Create an empty store.

        Args:
            path: the file to create, or ``postgresql://user@host/database``: a database, or a schema of it, without tables.
            identity: workflow, models and data of the observations.
            shown_as: the path for error messages, if the file will later be renamed to it.

        Raises:
            StoreError: the store exists already, its folder does not, or the server cannot be reached.
        """
        return cls(opening.created(address_of(path), identity, shown_as=shown_as), identity)

    @classmethod
    def open(cls, path: str | Path | PostgresUrl, identity: StoreIdentity | None = None) -> Self:
        """Open the store at ``path``.

        A store without write permission is opened for reading; if it has a write-ahead log, a temporary copy is read.

        Args:
            path: an existing store: a file, or ``postgresql://user@host/database``.
            identity: if given, the store must have this identity.

        Raises:
            StoreError: there is no store, or the store is of a different version, has another identity, is damaged, or is an
                incomplete copy made during a run. Nothing is written in this case.
        """
        address = address_of(path)
        database, found = opening.opened(address, identity)
        try:
            with database.transaction() as connection:
                number = _known_number(connection, found)
            if number is None:  # a number is assigned when the store gets the identity, so that a reader adds nothing
                raise StoreError(
                    f"{address}: what it was profiled with is not among its identities: the file is damaged: restore it from a "
                    "copy",
                    code="store-damaged",
                )
            return cls(database, found, number)
        except BaseException:
            database.close()
            raise

    @classmethod
    def open_or_create(cls, path: str | Path | PostgresUrl, identity: StoreIdentity) -> Self:
        """Open the store at ``path``, or create it if it does not exist (see :meth:`open` and :meth:`create`).

        An existing store may have another identity that :func:`~vinelm.traces.grow` can change to this one; it is opened
        unchanged.

        Raises:
            StoreError: the store belongs to another workflow, or has simulated instead of real models.
        """
        path = address_of(path)
        if not opening.exists(path):
            try:
                return cls.create(path, identity)
            except StoreError as error:
                if error.code != "store-created":  # otherwise another run created it a moment ago
                    raise
        store = cls.open(path)
        stranger = store.identity.stranger(identity)
        if stranger:
            store.close()
            raise StoreError(f"{path}: {stranger}: use another store, or undo the change", code="store-mismatch")
        return store

    @property
    def path(self) -> StoreAddress:
        """The path of the file, or the address of the database."""
        return self._database.path

    def held_by(self) -> str | None:
        """Return the process of the run that has locked the store, as ``pid N on HOST``; None if no run has."""
        return ", ".join(self._database.holders()) or None

    def close(self) -> None:
        """Close the store. Idempotent."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def database(self) -> Database:
        """The database connection, for the modules of this package."""
        return self._database

    def exclusive(self) -> AbstractContextManager[None]:
        """Lock the store for a run while the block runs; other processes may still read it.

        Raises:
            StoreError: another process has locked the store; the message names it.
        """
        return self._database.alone()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Commit all writes that this thread makes inside the block together; if the block raises, none of them."""
        with self._database.transaction():
            yield

    # -- requests ----------------------------------------------------------------------------------------------

    def register(self, requests: Iterable[Request], inputs: Mapping[str, str | None] | None = None) -> None:
        """Register the requests of a run; raise :class:`StoreError` if a request has changed since an earlier run.

        Args:
            requests: the requests.
            inputs: a hash of the graph's inputs, by request id; None for a hash that is unknown.
        """
        self.register_digests({request.id: request.digest() for request in requests}, inputs)

    def register_digests(self, wanted: Mapping[str, str], inputs: Mapping[str, str | None] | None = None) -> None:
        """Register requests by id and digest of the dataset row (see :meth:`register`)."""
        inputs = inputs or {}
        with self._database.transaction() as connection:
            rows = connection.execute(select(schema.requests.c.request_id, schema.requests.c.digest))
            known = {row.request_id: row.digest for row in rows}
            for request_id, digest in wanted.items():
                if known.get(request_id, digest) != digest:
                    raise StoreError(
                        f"{self.path}: the request {request_id!r} changed since it was profiled: use another store, or undo it",
                        code="store-mismatch",
                    )
            new = [
                {"request_id": key, "digest": digest, "input_digest": inputs.get(key)}
                for key, digest in wanted.items()
                if key not in known
            ]
            if new:
                connection.execute(insert(schema.requests), new)
            late = [{"request": key, "inputs": inputs[key]} for key in wanted if key in known and inputs.get(key) is not None]
            if late:
                connection.execute(_SET_INPUTS, late)

    def request_ids(self) -> list[str]:
        """Return the ids of all registered requests, in order of registration."""
        with self._database.transaction() as connection:
            order = "requests.rowid" if connection.dialect.name == "sqlite" else "requests.position"
            return list(connection.execute(select(schema.requests.c.request_id).order_by(literal_column(order))).scalars())

    # -- rows --------------------------------------------------------------------------------------------------

    def add(self, observation: Observation, checkpoint: bytes | None = None, *, reservation: int | None = None) -> None:
        """Add a row and its checkpoint, and settle its reservation, in one transaction.

        Args:
            observation: the row.
            checkpoint: the serialized workflow state after the row, if the request can resume from it.
            reservation: the reservation's ledger entry (from :meth:`reserve`).

        Raises:
            StoreError: the request and prefix already have a row; nothing is written.
        """
        values = {**values_of(observation), "identity_id": self.identity_id}
        prefix = values["prefix"]
        with self._database.transaction() as connection:
            if not connection.execute(_ADD_ROW, values).rowcount:
                cell = cell_name(observation.request_id, observation.prefix)
                raise StoreError(f"{self.path}: {cell}: this cell has a row already: check whether another run is writing")
            if checkpoint is not None:
                place = self.checkpoint_place
                digest = hashlib.sha256(checkpoint).hexdigest() if place is None else place.write(checkpoint)
                content = zlib.compress(checkpoint) if place is None else ELSEWHERE
                connection.execute(_ADD_BLOB, {"digest": digest, "content": content})
                connection.execute(_ADD_CHECKPOINT, {"request_id": observation.request_id, "prefix": prefix, "digest": digest})
            if reservation is not None:
                paid = observation.cost_usd + observation.tool_cost_usd
                connection.execute(_SETTLE, {"entry": reservation, "paid": paid})

    def add_many(self, observations: Iterable[Observation], *, unpaid: Collection[Cell] = frozenset()) -> int:
        """Add rows that no run on this store bought, each with a ledger entry; return the number of rows. All or nothing.

        ``unpaid``: (request, prefix) of the rows whose cost is recorded with another row or in a separate entry.

        Raises:
            StoreError: a request and prefix already have a row.
        """
        try:
            with self._database.transaction() as connection:
                return insert_rows(connection, observations, self.identity_id, unpaid)
        except StoreError as error:
            if _is_conflict(error.__cause__):
                raise StoreError(
                    f"{self.path}: one of these cells has a row already: keep one row per request and prefix"
                ) from error
            raise

    def observations(self) -> list[Observation]:
        """Return all rows in insertion order; about one second per 100,000 rows."""
        with self._database.transaction() as connection:
            return list(read_rows(connection))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with a row for each observation, in the order of storage. Needs the extra ``pandas``.

        The columns are the fields of :class:`~vinelm.rows.observation.Observation`. Dollars are in ``cost_usd`` and
        ``tool_cost_usd``, seconds in ``latency_s``, ``tool_latency_s`` and ``ttft_s``. The columns ``model`` and ``depth``
        (from 1) follow ``prefix``, which is a tuple of model names. Unknown values are missing.

        Raises:
            ConfigError: pandas is not installed.
        """
        rows = self.observations()
        names = [field.name for field in fields(Observation)]
        after = names.index("prefix") + 1
        names[after:after] = ["model", "depth"]
        columns = {name: [getattr(row, name) for row in rows] for name in names}
        graded = {"success": "Float64"} if any(isinstance(row.success, float) for row in rows) else {}
        return data_frame(columns, dtypes=_FRAME_DTYPES | graded)

    def record_source(self, kind: Literal["import", "merge", "reprice"], name: str, digest: str, row_count: int) -> None:
        """Record the origin of rows that no run on this store has executed.

        Args:
            kind: how the rows came into the store: by an import, a merge of stores, or as a copy at new prices.
            name: the name of the file that the rows come from.
            digest: the digest of this file.
            row_count: the number of rows.
        """
        values = {"kind": kind, "name": name, "digest": digest, "row_count": row_count}
        values["added_at"] = datetime.now(UTC).isoformat(timespec="seconds")
        with self._database.transaction() as connection:
            connection.execute(insert(schema.sources), values)

    def has(self, request_id: str, prefix: Sequence[str]) -> bool:
        """Return whether a request has a row for this whole prefix (the models of its calls)."""
        cell = {"request": request_id, "prefix": encode_prefix(prefix)}
        with self._database.transaction() as connection:
            return connection.execute(_HAS_ROW, cell).first() is not None

    def __len__(self) -> int:
        with self._database.transaction() as connection:
            return int(connection.execute(select(func.count()).select_from(schema.observations)).scalar_one())

    def checkpoint(self, request_id: str, prefix: Sequence[str]) -> bytes | None:
        """Return the serialized state of a request after the calls of ``prefix`` (their models); None if there is none.

        Raises:
            StoreError: the state is damaged, or is stored elsewhere and cannot be read.
        """
        cell = {"request": request_id, "prefix": encode_prefix(prefix)}
        with self._database.transaction() as connection:
            row = connection.execute(_CHECKPOINT, cell).first()
        if row is None:
            return None
        content = unpacked(row.digest, row.content, self.checkpoint_place)
        if content is None:
            raise StoreError(f"{self.path}: {cell_name(request_id, prefix)}: the checkpoint is damaged", code="store-damaged")
        return content

    @property
    def checkpoint_place(self) -> CheckpointPlace | None:
        """The folder or address where the contents of new checkpoints are stored; None if it is the store itself."""
        if self._place == "unread":
            with self._database.transaction() as connection:
                url = connection.execute(_META, {"name": schema.CHECKPOINTS}).scalar()
            self._place = None if url is None else CheckpointPlace(url)
        return self._place

    def keep_checkpoints_under(self, place: CheckpointPlace) -> None:
        """Store the contents of new checkpoints at ``place``, in this and later runs. Existing checkpoints stay in the store.

        Raises:
            StoreError: checkpoints are already stored at another place, or the new place cannot be written.
        """
        if self.checkpoint_place is None:
            place.require_writable()  # before anything is paid for
            value = {"key": schema.CHECKPOINTS, "value": place.url}
            with self._database.transaction() as connection:
                # Another run may have chosen a place meanwhile: that place counts, and is compared below.
                connection.execute(insert(schema.meta).on_conflict_do_nothing(), value)
            self._place = "unread"
        kept = self.checkpoint_place
        assert kept is not None
        if kept.url != place.url:
            raise StoreError(
                f"{self.path}: its checkpoints are kept under {kept.url}, not {place.url}: give that, or leave it out"
            )

    # -- ledger -----------------------------------------------------------------------------------------------

    def reserve(self, request_id: str, prefix: Sequence[str], upper_usd: float, *, is_batched: bool = False) -> int:
        """Reserve dollars for calls before they are made; return the number of the ledger entry (for :meth:`add`).

        ``is_batched``: whether all these calls go through batch APIs (:class:`~vinelm.traces.store.batches.BatchRecords`).
        """
        entry = {
            "request_id": request_id,
            "prefix": encode_prefix(prefix),
            "reserved_usd": upper_usd,
            "settled_usd": None,
            "is_abandoned": False,
            "is_batched": is_batched,
        }
        with self._database.transaction() as connection:
            return new_key(connection.execute(_RESERVE, entry))

    def raise_reservation(self, reservation: int, upper_usd: float) -> None:
        """Set the amount of a reservation to ``upper_usd``, the maximum cost of its calls in dollars."""
        with self._database.transaction() as connection:
            connection.execute(_RAISE, {"entry": reservation, "upper": upper_usd})

    def settle(self, reservation: int, cost_usd: float, request_id: str | None = None) -> None:
        """Record the actual cost, in dollars, of a reservation whose calls add no row to the store.

        If the reservation was made without a request, ``request_id`` is set in its ledger entry. None changes nothing.
        """
        paid = {"entry": reservation, "paid": cost_usd}
        with self._database.transaction() as connection:
            if request_id is None:
                connection.execute(_SETTLE, paid)
            else:
                connection.execute(_SETTLE_AS, {**paid, "request": request_id})

    def abandon_open(self) -> int:
        """Charge all open reservations in full, and return the number of these reservations.

        They are those of a killed run, whose calls may have been made and billed. Only the run that has locked the store
        (:meth:`exclusive`) may call this.
        """
        settled = {"settled_usd": schema.ledger.c.reserved_usd, "is_abandoned": True}
        is_open = schema.ledger.c.settled_usd.is_(None)
        with self._database.transaction() as connection:
            return connection.execute(update(schema.ledger).where(is_open).values(settled)).rowcount

    def committed_usd(self) -> float:
        """Return the dollars spent plus the dollars reserved for calls in progress."""
        paid = func.sum(func.coalesce(schema.ledger.c.settled_usd, schema.ledger.c.reserved_usd))
        with self._database.transaction() as connection:
            return float(connection.execute(select(paid)).scalar_one() or 0.0)

    def retired_calls(self) -> int:
        """Return how many model calls were made for retired rows, which stay in the store but are not used."""
        with self._database.transaction() as connection:
            return int(connection.execute(select(func.coalesce(func.sum(schema.retired.c.calls), 0))).scalar_one())

    def add_entries(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Add ledger entries (:func:`~vinelm.traces.store.rows.ledger_entry`) for spending that has no stored result."""
        if entries:
            with self._database.transaction() as connection:
                connection.execute(insert(schema.ledger), entries)

    def spend(self, by: Literal["model", "depth", "stage"]) -> dict[str | int, Spend]:
        """Return the numbers of rows, model calls and failed rows, and the cost in dollars, for each model, depth or stage.

        ``by`` says which of the three the result is keyed by.
        """
        table = schema.observations
        group = table.c[by]
        cost = func.sum(table.c.cost_usd + table.c.tool_cost_usd)
        failed = func.sum(case((table.c.failure.is_not(None), 1), else_=0))
        query = select(group, func.count(), func.sum(table.c.calls), cost, failed).group_by(group).order_by(group)
        with self._database.transaction() as connection:
            return {row[0]: Spend(int(row[1]), int(row[2]), float(row[3]), int(row[4])) for row in connection.execute(query)}


_FRAME_DTYPES = {
    **dict.fromkeys(("success", "stopped"), "boolean"),
    **dict.fromkeys(("tokens_in", "tokens_out", "tokens_cached"), "Int64"),
    **dict.fromkeys(("answer_class", "round"), "Int64"),
    **dict.fromkeys(("ttft_s", "probability"), "Float64"),
}


def number_of(connection: Connection, identity: StoreIdentity) -> int:
    """Return an identity's number in the table ``identities``; add the identity if new. Joins the caller's transaction."""
    if (known := _known_number(connection, identity)) is not None:
        return known
    since = datetime.now(UTC).isoformat(timespec="seconds")
    added = connection.execute(insert(schema.identities), {"value": identity.to_json(), "since": since})
    return new_key(added)


def _known_number(connection: Connection, identity: StoreIdentity) -> int | None:
    rows = connection.execute(select(schema.identities))
    return next((int(row.identity_id) for row in rows if StoreIdentity.from_json(row.value).key == identity.key), None)


def new_key(added: CursorResult[Any]) -> int:
    """Return the primary key that the database gave to the row that ``added`` inserted."""
    key = added.inserted_primary_key
    assert key is not None
    return int(key[0])


def _is_conflict(error: BaseException | None) -> bool:
    return isinstance(error, sqlite3.IntegrityError) or getattr(error, "sqlstate", None) == "23505"
