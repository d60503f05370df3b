"""Old stores become new ones where they lie: forward only, each in one transaction.

A step is SQL text, frozen once it is released: it must not follow ``schema`` when that moves on.
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
"""Version to the statements that make the next version of it."""


def migrate(path: Path) -> None:
    """Bring the store at ``path`` to :data:`SCHEMA_VERSION`, all or nothing: a crash leaves it as it was.

    Harmless when it is there already. :class:`StoreError` if a run holds the store, because it knows only the old version.
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
    run("UPDATE meta SET value = value WHERE key = 'schema_version'")  # take the write lock before looking
    version = int(run("SELECT value FROM meta WHERE key = 'schema_version'").scalar_one())
    for old in range(version, SCHEMA_VERSION):
        if old not in STEPS:
            raise StoreError(f"{path}: store version {old} cannot be read any more: export it with the VineLM that wrote it")
        for statement in STEPS[old]:
            run(statement)
    run("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(SCHEMA_VERSION),))
