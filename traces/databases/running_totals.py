"""Running totals of a store in PostgreSQL: what its ledger commits and how many calls it holds.

A run asks for both before each unit. Triggers of the server keep them, in the transaction that changes the ledger or a row,
whoever does it. The sums over the rows stay the truth, and every run compares the two when it begins.
"""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
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


class Totals(NamedTuple):
    """The dollars and calls that count against the budgets of a store.

    Attributes:
        usd: dollars settled, and reserved for units in flight. Decimal numbers: the same in any order of adding.
        calls: model calls of all rows, retired ones included, and the bounds of those of units in flight.
    """

    usd: Decimal
    calls: int


def add_totals(connection: Connection) -> None:
    """Add the table and its triggers to a store without them, in the caller's transaction; does nothing where they are."""
    if connection.execute(_HAS_TABLE).scalar():
        return
    connection.execute(_LOCK_TABLES)  # nothing is written between the sums and the triggers
    for statement in (*_TABLE, *_FUNCTIONS, *_TRIGGERS):
        connection.exec_driver_sql(statement)
    connection.execute(_SET)


def totals(connection: Connection) -> Totals:
    """Return the running totals."""
    return Totals(*connection.execute(_READ).one())


def summed(connection: Connection) -> Totals:
    """Return the sums over all rows, which takes longer the more there are."""
    return Totals(*connection.execute(_SUMS).one())


def corrected(connection: Connection) -> Totals | None:
    """Set the running totals to the sums of the rows. The caller holds the store's lock for writing, or the store.

    Returns:
        What they were if they differed; None if they were right.
    """
    found = totals(connection)
    if found == summed(connection):
        return None
    connection.execute(_SET)
    return found


def are_right(connection: Connection) -> bool:
    """Return whether the running totals are the sums of the rows. Waits for nobody: one statement sees one moment."""
    return bool(connection.execute(_ARE_RIGHT).scalar_one())


_USD = "coalesce(sum(coalesce(settled_usd, reserved_usd)::numeric), 0)"
_OPEN_CALLS = "coalesce(sum(calls) FILTER (WHERE settled_usd IS NULL), 0)"
_HAS_TABLE = text("SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'totals'")
_LOCK_TABLES = text("LOCK TABLE ledger, observations, retired IN SHARE ROW EXCLUSIVE MODE")
_TABLE = (
    "CREATE TABLE totals (usd NUMERIC NOT NULL, calls BIGINT NOT NULL)",
    "INSERT INTO totals VALUES (0, 0)",
    "COMMENT ON TABLE totals IS 'Running sums of ledger and calls, one row; triggers keep them. The rows are the truth.'",
)


def _function(name: str, usd: str, calls: str) -> str:
    """A trigger's function that adds what a statement changed. It works in the store's schema, whoever changes the table."""
    return (
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$\n"  # noqa: S608
        "DECLARE more numeric := 0; less numeric := 0; more_calls bigint := 0; less_calls bigint := 0;\n"
        "BEGIN\n"
        f"  IF TG_OP <> 'DELETE' THEN SELECT {usd}, {calls} INTO more, more_calls FROM added; END IF;\n"
        f"  IF TG_OP <> 'INSERT' THEN SELECT {usd}, {calls} INTO less, less_calls FROM gone; END IF;\n"
        "  IF more <> less OR more_calls <> less_calls THEN\n"
        "    UPDATE totals SET usd = usd + more - less, calls = totals.calls + more_calls - less_calls;\n"
        "  END IF;\n"
        "  RETURN NULL;\n"
        "END $$"
    )


_FUNCTIONS = (
    _function("count_ledger", _USD, _OPEN_CALLS),
    _function("count_rows", "0", "coalesce(sum(calls), 0)"),
)
_TRIGGERS = tuple(
    f"CREATE TRIGGER {function}_{event.lower()} AFTER {event} ON {table} REFERENCING {changed} "
    f"FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
    for table, function in (("ledger", "count_ledger"), ("observations", "count_rows"), ("retired", "count_rows"))
    for event, changed in (
        ("INSERT", "NEW TABLE AS added"),
        ("UPDATE", "NEW TABLE AS added OLD TABLE AS gone"),
        ("DELETE", "OLD TABLE AS gone"),
    )
)
_SUM_USD = f"(SELECT {_USD} FROM ledger)"  # noqa: S608
_SUM_CALLS = (
    "((SELECT coalesce(sum(calls), 0) FROM observations) + (SELECT coalesce(sum(calls), 0) FROM retired) "  # noqa: S608
    f"+ (SELECT {_OPEN_CALLS} FROM ledger))::bigint"
)
_READ = text("SELECT usd, calls FROM totals")
_SUMS = text(f"SELECT {_SUM_USD}, {_SUM_CALLS}")
_SET = text(f"UPDATE totals SET usd = {_SUM_USD}, calls = {_SUM_CALLS}")  # noqa: S608
_ARE_RIGHT = text(f"SELECT (usd, calls) = ({_SUM_USD}, {_SUM_CALLS}) FROM totals")  # noqa: S608
