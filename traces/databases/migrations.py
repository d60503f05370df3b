"""Migrate stores of older schema versions in place: forward only, each store in one transaction.

A step is SQL text that is never edited after its release and does not depend on the current ``schema``.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

from vinelm.errors import StoreError
from vinelm.traces.databases.database import Database
from vinelm.traces.databases.lock import run_lock
from vinelm.traces.databases.schema import SCHEMA_VERSION, metadata

STEPS: dict[int, tuple[str, ...]] = {
    1: (
        "CREATE TABLE sources (source_id INTEGER NOT NULL, kind VARCHAR NOT NULL, name VARCHAR NOT NULL, "
        "digest VARCHAR NOT NULL, row_count INTEGER NOT NULL, added_at VARCHAR NOT NULL, PRIMARY KEY (source_id))",
    ),
    2: (
        "ALTER TABLE requests ADD COLUMN input_digest VARCHAR",
        "ALTER TABLE observations ADD COLUMN identity_id INTEGER DEFAULT 1 NOT NULL",
        "ALTER TABLE observations ADD COLUMN recorded_usd FLOAT",
        "CREATE TABLE identities (identity_id INTEGER NOT NULL, value VARCHAR NOT NULL, since VARCHAR NOT NULL, "
        "PRIMARY KEY (identity_id))",
        "INSERT INTO identities (identity_id, value, since) "
        "SELECT 1, value, coalesce(json_extract(value, '$.created_at'), '') FROM meta WHERE key = 'identity'",
        "CREATE TABLE retired (retired_id INTEGER NOT NULL, row_id INTEGER NOT NULL, request_id VARCHAR NOT NULL, "
        "prefix VARCHAR NOT NULL, model VARCHAR NOT NULL, depth INTEGER NOT NULL, stage VARCHAR NOT NULL, success BOOLEAN, "
        "stopped BOOLEAN, cost_usd FLOAT NOT NULL, latency_s FLOAT NOT NULL, tool_cost_usd FLOAT NOT NULL, "
        "tool_latency_s FLOAT NOT NULL, tokens_in INTEGER, tokens_out INTEGER, tokens_cached INTEGER, "
        "tokens_estimated BOOLEAN NOT NULL, ttft_s FLOAT, calls INTEGER NOT NULL, retries INTEGER NOT NULL, "
        "in_flight INTEGER NOT NULL, failure VARCHAR, detail VARCHAR, identity_id INTEGER NOT NULL, recorded_usd FLOAT, "
        "request_digest VARCHAR, input_digest VARCHAR, scored_id INTEGER NOT NULL, unscored_id INTEGER, state VARCHAR, "
        "reason VARCHAR NOT NULL, retired_at VARCHAR NOT NULL, PRIMARY KEY (retired_id))",
        "CREATE INDEX retired_by_state ON retired (state)",
    ),
    3: (
        "ALTER TABLE observations ADD COLUMN arm VARCHAR",
        "ALTER TABLE retired ADD COLUMN arm VARCHAR",
    ),
    4: (
        "ALTER TABLE observations ADD COLUMN signal VARCHAR",
        "ALTER TABLE observations ADD COLUMN answer VARCHAR",
        "ALTER TABLE observations ADD COLUMN answer_digest VARCHAR",
        "ALTER TABLE observations ADD COLUMN answer_class INTEGER",
        "ALTER TABLE observations ADD COLUMN is_continued BOOLEAN DEFAULT 0 NOT NULL",
        "ALTER TABLE observations ADD COLUMN sampler VARCHAR",
        "ALTER TABLE observations ADD COLUMN round INTEGER",
        "ALTER TABLE observations ADD COLUMN probability FLOAT",
        "ALTER TABLE retired ADD COLUMN signal VARCHAR",
        "ALTER TABLE retired ADD COLUMN answer VARCHAR",
        "ALTER TABLE retired ADD COLUMN answer_digest VARCHAR",
        "ALTER TABLE retired ADD COLUMN answer_class INTEGER",
        "ALTER TABLE retired ADD COLUMN is_continued BOOLEAN DEFAULT 0 NOT NULL",
        "ALTER TABLE retired ADD COLUMN sampler VARCHAR",
        "ALTER TABLE retired ADD COLUMN round INTEGER",
        "ALTER TABLE retired ADD COLUMN probability FLOAT",
    ),
    5: (
        "ALTER TABLE observations RENAME TO old_observations",
        "CREATE TABLE observations (row_id INTEGER NOT NULL, request_id VARCHAR NOT NULL, prefix VARCHAR NOT NULL, model "
        "VARCHAR NOT NULL, depth INTEGER NOT NULL, stage VARCHAR NOT NULL, success BOOLEAN, stopped BOOLEAN, cost_usd "
        "FLOAT NOT NULL, latency_s FLOAT, tool_cost_usd FLOAT NOT NULL, tool_latency_s FLOAT NOT NULL, tokens_in INTEGER, "
        "tokens_out INTEGER, tokens_cached INTEGER, tokens_estimated BOOLEAN NOT NULL, ttft_s FLOAT, calls INTEGER NOT "
        "NULL, retries INTEGER NOT NULL, in_flight INTEGER NOT NULL, failure VARCHAR, detail VARCHAR, identity_id INTEGER "
        "DEFAULT 1 NOT NULL, recorded_usd FLOAT, arm VARCHAR, signal VARCHAR, answer VARCHAR, answer_digest VARCHAR, "
        "answer_class INTEGER, is_continued BOOLEAN DEFAULT 0 NOT NULL, sampler VARCHAR, round INTEGER, probability "
        "FLOAT, list_usd FLOAT, PRIMARY KEY (row_id), CONSTRAINT one_row_per_cell UNIQUE (request_id, prefix))",
        "INSERT INTO observations (row_id, request_id, prefix, model, depth, stage, success, stopped, cost_usd, "
        "latency_s, tool_cost_usd, tool_latency_s, tokens_in, tokens_out, tokens_cached, tokens_estimated, ttft_s, calls, "
        "retries, in_flight, failure, detail, identity_id, recorded_usd, arm, signal, answer, answer_digest, "
        "answer_class, is_continued, sampler, round, probability) SELECT row_id, request_id, prefix, model, depth, stage, "
        "success, stopped, cost_usd, latency_s, tool_cost_usd, tool_latency_s, tokens_in, tokens_out, tokens_cached, "
        "tokens_estimated, ttft_s, calls, retries, in_flight, failure, detail, identity_id, recorded_usd, arm, signal, "
        "answer, answer_digest, answer_class, is_continued, sampler, round, probability FROM old_observations",
        "DROP TABLE old_observations",
        "ALTER TABLE retired RENAME TO old_retired",
        "CREATE TABLE retired (retired_id INTEGER NOT NULL, row_id INTEGER NOT NULL, request_id VARCHAR NOT NULL, prefix "
        "VARCHAR NOT NULL, model VARCHAR NOT NULL, depth INTEGER NOT NULL, stage VARCHAR NOT NULL, success BOOLEAN, "
        "stopped BOOLEAN, cost_usd FLOAT NOT NULL, latency_s FLOAT, tool_cost_usd FLOAT NOT NULL, tool_latency_s FLOAT "
        "NOT NULL, tokens_in INTEGER, tokens_out INTEGER, tokens_cached INTEGER, tokens_estimated BOOLEAN NOT NULL, "
        "ttft_s FLOAT, calls INTEGER NOT NULL, retries INTEGER NOT NULL, in_flight INTEGER NOT NULL, failure VARCHAR, "
        "detail VARCHAR, identity_id INTEGER NOT NULL, recorded_usd FLOAT, request_digest VARCHAR, input_digest VARCHAR, "
        "scored_id INTEGER NOT NULL, unscored_id INTEGER, state VARCHAR, reason VARCHAR NOT NULL, retired_at VARCHAR NOT "
        "NULL, arm VARCHAR, signal VARCHAR, answer VARCHAR, answer_digest VARCHAR, answer_class INTEGER, is_continued "
        "BOOLEAN DEFAULT 0 NOT NULL, sampler VARCHAR, round INTEGER, probability FLOAT, list_usd FLOAT, PRIMARY KEY "
        "(retired_id))",
        "INSERT INTO retired (retired_id, row_id, request_id, prefix, model, depth, stage, success, stopped, cost_usd, "
        "latency_s, tool_cost_usd, tool_latency_s, tokens_in, tokens_out, tokens_cached, tokens_estimated, ttft_s, calls, "
        "retries, in_flight, failure, detail, identity_id, recorded_usd, request_digest, input_digest, scored_id, "
        "unscored_id, state, reason, retired_at, arm, signal, answer, answer_digest, answer_class, is_continued, sampler, "
        "round, probability) SELECT retired_id, row_id, request_id, prefix, model, depth, stage, success, stopped, "
        "cost_usd, latency_s, tool_cost_usd, tool_latency_s, tokens_in, tokens_out, tokens_cached, tokens_estimated, "
        "ttft_s, calls, retries, in_flight, failure, detail, identity_id, recorded_usd, request_digest, input_digest, "
        "scored_id, unscored_id, state, reason, retired_at, arm, signal, answer, answer_digest, answer_class, "
        "is_continued, sampler, round, probability FROM old_retired",
        "DROP TABLE old_retired",
        "CREATE INDEX retired_by_state ON retired (state)",
        "ALTER TABLE ledger ADD COLUMN is_batched BOOLEAN DEFAULT 0 NOT NULL",
        'CREATE TABLE batches (batch_id INTEGER NOT NULL, "key" VARCHAR NOT NULL, model VARCHAR NOT NULL, provider_id '
        "VARCHAR, calls INTEGER NOT NULL, is_closed BOOLEAN NOT NULL, recorded_s FLOAT NOT NULL, PRIMARY KEY (batch_id))",
        "CREATE TABLE batch_calls (digest VARCHAR NOT NULL, batch_id INTEGER NOT NULL, request_id VARCHAR NOT NULL, "
        "prefix VARCHAR NOT NULL, upper_usd FLOAT NOT NULL, answer VARCHAR, PRIMARY KEY (digest))",
        "CREATE INDEX batch_calls_by_cell ON batch_calls (request_id, prefix)",
    ),
}
"""Schema version to the statements that upgrade it to the next version."""
POSTGRES_STEPS = {
    5: (
        *(f"ALTER TABLE {table} ALTER COLUMN latency_s DROP NOT NULL" for table in ("observations", "retired")),
        *(f"ALTER TABLE {table} ADD COLUMN list_usd DOUBLE PRECISION" for table in ("observations", "retired")),
        "ALTER TABLE ledger ADD COLUMN is_batched BOOLEAN DEFAULT false NOT NULL",
    ),
}
"""The same for stores in PostgreSQL; new tables are made besides. No store of an earlier version was ever there."""


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


def migrate_in_postgres(connection: Connection, name: object) -> None:
    """Upgrade the store of a schema to :data:`SCHEMA_VERSION` in the caller's transaction.

    Raises:
        StoreError: the version is no longer supported.
    """
    run = connection.exec_driver_sql
    version = int(run("SELECT value FROM meta WHERE key = 'schema_version' FOR UPDATE").scalar_one())
    for old in range(version, SCHEMA_VERSION):
        if old not in POSTGRES_STEPS:
            raise StoreError(f"{name}: store version {old} is no longer supported: export it with the VineLM that wrote it")
        for statement in POSTGRES_STEPS[old]:
            run(statement)
    metadata.create_all(connection)
    run("UPDATE meta SET value = %s WHERE key = 'schema_version'", (str(SCHEMA_VERSION),))


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
