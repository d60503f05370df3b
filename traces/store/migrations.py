"""Migrate stores of older schema versions in place: forward only, each store in one transaction.

A step is SQL text that is never edited after its release and does not depend on the current ``schema``.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

from vinelm.errors import StoreError
from vinelm.traces.store.database import Database
from vinelm.traces.store.lock import run_lock
from vinelm.traces.store.schema import SCHEMA_VERSION

STEPS: dict[int, tuple[str, ...]] = {
    1: (
        "CREATE TABLE sources (source_id INTEGER NOT NULL, kind VARCHAR NOT NULL, name VARCHAR NOT NULL, "
        "digest VARCHAR NOT NULL, row_count INTEGER NOT NULL, added_at VARCHAR NOT NULL, PRIMARY KEY (source_id))",
    ),
}
"""Schema version to the statements that upgrade it to the next version."""


def migrate(path: Path) -> None:
    """Upgrade the store at ``path`` to :data:`SCHEMA_VERSION`, all or nothing; does nothing if it is up to date.

    Raises:
        StoreError: a run holds the store (it may be of the old version), or the version is no longer supported.
    """
    with run_lock(path):
        database = Database(path)
        try:
            with database.transaction() as connection:
                _step_up(connection, path)
        finally:
            database.close()


def _step_up(connection: Connection, path: Path) -> None:
    run = connection.exec_driver_sql
    run("UPDATE meta SET value = value WHERE key = 'schema_version'")  # takes the write lock before the version is read
    version = int(run("SELECT value FROM meta WHERE key = 'schema_version'").scalar_one())
    for old in range(version, SCHEMA_VERSION):
        if old not in STEPS:
            raise StoreError(f"{path}: store version {old} is no longer supported: export it with the VineLM that wrote it")
        for statement in STEPS[old]:
            run(statement)
    run("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(SCHEMA_VERSION),))
