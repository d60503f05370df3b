"""Create and open stores in PostgreSQL."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, text

from vinelm.errors import StoreError
from vinelm.traces.databases import schema
from vinelm.traces.databases.address import PostgresUrl
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.databases.postgres import PostgresDatabase
from vinelm.traces.databases.running_totals import add_totals
from vinelm.traces.databases.schema import SCHEMA_VERSION
from vinelm.traces.databases.tables import MORE_COLUMNS, metadata

_TABLES = text("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
_CREATING = text("SELECT pg_advisory_xact_lock(1447644741, 0)")  # two runs that create one store at a time


def meta_of(url: PostgresUrl) -> dict[str, str] | None:
    """Read the table ``meta`` of the store (key to value).

    Returns:
        An empty mapping if the schema has tables but no store. None where there are no tables.

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


def created(url: PostgresUrl, identity: StoreIdentity) -> PostgresDatabase:
    """Create the tables of an empty store.

    Raises:
        StoreError: the schema has tables already, or may not be written.
    """
    database = PostgresDatabase(url)
    try:
        with database.transaction() as connection:
            connection.execute(_CREATING)
            if _meta(connection) is not None:
                raise StoreError(f"{url}: exists already: open it, or use another database", code="store-created")
            for tables in (schema.metadata, metadata):
                database.create_tables(tables, connection)
            for statement in MORE_COLUMNS:
                connection.exec_driver_sql(statement)
            add_totals(connection)
            rows = {"schema_version": str(SCHEMA_VERSION), "identity": identity.to_json()}
            connection.execute(insert(schema.meta), [{"key": key, "value": value} for key, value in rows.items()])
            # The number is left to the sequence, which the next identity continues.
            connection.execute(insert(schema.identities), {"value": identity.to_json(), "since": identity.created_at})
    except BaseException:
        database.close()
        raise
    return database


def opened(url: PostgresUrl) -> tuple[PostgresDatabase, dict[str, str]]:
    """Open a store and return it with its ``meta``.

    Raises:
        StoreError: there is no store, or it is of an older version, of which none was ever in PostgreSQL.
    """
    database = PostgresDatabase(url)
    try:
        with database.transaction() as connection:
            meta = _meta(connection)
        if meta is None:
            raise StoreError(f"{url}: no such store: profile a workflow first", code="store-missing")
        version = meta.get("schema_version", "")
        if version.isdecimal() and int(version) < SCHEMA_VERSION:
            raise StoreError(f"{url}: store version {version} is no longer supported: export it with the VineLM that wrote it")
    except BaseException:
        database.close()
        raise
    return database, meta
