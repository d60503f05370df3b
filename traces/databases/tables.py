"""The tables that a store in PostgreSQL has in addition: the runs at work, and their units."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    DateTime,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    literal_column,
    text,
)

metadata = MetaData()

runs = Table(
    "runs",
    metadata,
    Column("run_id", Integer, primary_key=True, autoincrement=True, comment="number of the run, and of its advisory lock"),
    Column("owner", String, nullable=False, comment="the process"),
    Column("expires_at", DateTime(timezone=True), nullable=False, comment="end of its lease, by the clock of the database"),
    comment="The runs at work on the store. A run that ends removes its row.",
)

units = Table(
    "units",
    metadata,
    Column("request_id", String, primary_key=True, comment="the unit's request"),
    Column("prefix", String, primary_key=True, comment="the unit's prefix, JSON list"),
    Column("run_id", Integer, comment="the run that has claimed it; NULL: none"),
    Column("entry_id", BigInteger, comment="its reservation in the ledger"),
    Index("units_by_run", "run_id"),
    comment="Units that were claimed. A claim holds while its run is alive.",
)

MORE_COLUMNS = (
    "ALTER TABLE requests ADD COLUMN position BIGSERIAL",
    "ALTER TABLE ledger ADD COLUMN run_id INTEGER DEFAULT nullif(current_setting('vinelm.run', true), '')::integer",
    "ALTER TABLE ledger ADD COLUMN calls INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX ledger_open ON ledger (run_id) WHERE settled_usd IS NULL",
)
"""Columns of common tables that a file does without: the order of requests, whose reservation it is and its bound of calls."""

LIVE = text(
    "SELECT r.run_id FROM runs r WHERE r.expires_at > clock_timestamp() AND EXISTS (SELECT 1 FROM pg_locks l "
    "WHERE l.locktype = 'advisory' AND l.granted AND l.objid::bigint = 1000 + r.run_id "
    "AND l.classid = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
)
"""The runs that are alive: their lease has not expired, and their session holds their lock."""


def of_no_live_run() -> ColumnElement[bool]:
    """Return the condition that an entry of the ledger is of no run that is alive."""
    condition: ColumnElement[bool] = literal_column(f"(ledger.run_id IS NULL OR ledger.run_id NOT IN ({LIVE.text}))")
    return condition
