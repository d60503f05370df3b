"""Creates and opens the database of a store, by its address: a file, or a schema in PostgreSQL."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import Connection, insert, select, text

from vinelm.errors import StoreError
from vinelm.io.file_kinds import near
from vinelm.traces.databases import schema
from vinelm.traces.databases.address import PostgresUrl, StoreAddress
from vinelm.traces.databases.database import Database, is_writable, read_meta, readable
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.databases.postgres import PostgresDatabase
from vinelm.traces.databases.recovery import recover
from vinelm.traces.databases.schema import OPEN_LOG, OPEN_RUN, SCHEMA_VERSION

_TABLES = text("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
_CREATING = text("SELECT pg_advisory_xact_lock(1447644741, 0)")  # for two runs that create one store at the same time


def exists(address: StoreAddress) -> bool:
    """Return whether anything (a store or something else) exists at the address.

    Raises:
        StoreError: the address cannot be read.
    """
    if isinstance(address, PostgresUrl):
        return _postgres_meta(address) is not None
    return address.exists() and read_meta(address) is not None


def created(address: StoreAddress, identity: StoreIdentity, *, shown_as: Path | None = None) -> Database:
    """Create an empty store at the address and return its database; see :meth:`ObservationStore.create`.

    ``shown_as`` is the path for error messages, if the file will later be renamed to it.
    """
    if isinstance(address, PostgresUrl):
        return _created_in_postgres(address, identity)
    if exists(address):
        raise StoreError(f"{address}: exists already: open it, or use another path")
    if not address.parent.is_dir():
        raise StoreError(f"{address}: the folder {address.parent} does not exist: create it first")
    database = Database(address, shown_as=shown_as)
    with database.transaction() as connection:
        database.create_tables(schema.metadata, connection)
        rows = {"schema_version": str(SCHEMA_VERSION), "identity": identity.to_json()}
        connection.execute(insert(schema.meta), [{"key": key, "value": value} for key, value in rows.items()])
        first = {"identity_id": 1, "value": identity.to_json(), "since": identity.created_at}
        connection.execute(insert(schema.identities), first)
    return database


def opened(address: StoreAddress, wanted: StoreIdentity | None) -> tuple[Database, StoreIdentity]:
    """Open a store and return its database and its identity, which must equal ``wanted`` if given.

    See :meth:`ObservationStore.open`.
    """
    if isinstance(address, PostgresUrl):
        return _opened_in_postgres(address, wanted)
    if not address.exists():
        raise StoreError(f"{address}: no such store{near(address)}: profile a workflow first", code="store-missing")
    meta = read_meta(address)
    if meta is None:
        raise StoreError(f"{address}: an empty file, not a store: profile a workflow first", code="store-missing")
    found = _identity_in(meta, address, wanted, Database.not_a_store)
    with ExitStack() as closing:
        file = closing.enter_context(readable(address))
        is_read_only = file == address and not is_writable(address)
        if OPEN_RUN in meta:
            # Checked before SQLite opens it for writing, which would copy a log of another time into the file.
            run = meta[OPEN_RUN]
            recover(file, run=run, is_whole=meta.get(OPEN_LOG) == run, shown_as=address, is_read_only=is_read_only)
        database = Database(file, shown_as=address, is_read_only=is_read_only)
        database.and_then(closing.pop_all())
    return database, found


def _identity_in(meta: dict[str, str], path: StoreAddress, wanted: StoreIdentity | None, kind: str) -> StoreIdentity:
    """Return the identity in ``meta``, the table of the store at ``path``.

    ``kind`` is the error message's description of a file that is not a store, such as "a SQLite file, but not an observation
    store".

    Raises:
        StoreError: there is no store, the store is of a different version, or its identity is not ``wanted``.
    """
    try:
        version = int(meta["schema_version"])
        if version != SCHEMA_VERSION:
            written = f"store version {version}, this one reads {SCHEMA_VERSION}"
            is_newer = version > SCHEMA_VERSION
            how = "upgrade VineLM" if is_newer else "read it with the VineLM that wrote it"
            raise StoreError(
                f"{path}: written by {'a newer' if is_newer else 'an older'} VineLM ({written}): {how}, or use another path"
            )
        found = StoreIdentity.from_json(meta["identity"])
    except (KeyError, ValueError, TypeError) as error:
        raise StoreError(f"{path}: {kind}: use another path") from error
    difference = found.difference(wanted) if wanted else None
    if difference:
        raise StoreError(f"{path}: {difference}: use another store, or undo the change", code="store-mismatch")
    return found


# -- in PostgreSQL ----------------------------------------------------------------------------------------------


def _postgres_meta(url: PostgresUrl) -> dict[str, str] | None:
    """Read the table ``meta`` of the store (key to value).

    Returns:
        The mapping; empty if the schema has tables but no store. None if there are no tables.

    Raises:
        StoreError: the server cannot be reached.
    """
    database = PostgresDatabase(url)
    try:
        with database.transaction() as connection:
            return _meta(connection)
    finally:
        database.close()


def _meta(connection: Connection) -> dict[str, str] | None:
    tables = set(connection.execute(_TABLES).scalars())
    if "meta" not in tables:
        return {} if tables else None
    return {row.key: row.value for row in connection.execute(select(schema.meta))}


def _created_in_postgres(url: PostgresUrl, identity: StoreIdentity) -> PostgresDatabase:
    """Create the tables of an empty store, and return its database.

    Raises:
        StoreError: the schema already has tables, or cannot be written.
    """
    database = PostgresDatabase(url)
    try:
        with database.transaction() as connection:
            connection.execute(_CREATING)
            if _meta(connection) is not None:
                raise StoreError(f"{url}: exists already: open it, or use another database", code="store-created")
            database.create_tables(schema.metadata, connection)
            connection.exec_driver_sql("ALTER TABLE requests ADD COLUMN position BIGSERIAL")  # a file has its rowid
            rows = {"schema_version": str(SCHEMA_VERSION), "identity": identity.to_json()}
            connection.execute(insert(schema.meta), [{"key": key, "value": value} for key, value in rows.items()])
            # The number is left to the sequence, which the next identity continues.
            connection.execute(insert(schema.identities), {"value": identity.to_json(), "since": identity.created_at})
    except BaseException:
        database.close()
        raise
    return database


def _opened_in_postgres(url: PostgresUrl, wanted: StoreIdentity | None) -> tuple[PostgresDatabase, StoreIdentity]:
    """Open a store and return its database and identity.

    Raises:
        StoreError: there is no store, the store is of a different version, or its identity is not ``wanted``.
    """
    database = PostgresDatabase(url)
    try:
        with database.transaction() as connection:
            meta = _meta(connection)
        if meta is None:
            raise StoreError(f"{url}: no such store: profile a workflow first", code="store-missing")
        found = _identity_in(meta, url, wanted, database.not_a_store)
    except BaseException:
        database.close()
        raise
    return database, found
