"""The tables of an observation store, with a comment per column. ``docs/store.md`` is generated from this file.

A store is one SQLite file, or one schema of a PostgreSQL database. Prefixes are stored as JSON text, ``["small","large"]``;
unknown values are NULL, never 0. Statements with ``ON CONFLICT`` use PostgreSQL's dialect, which SQLite also accepts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import UserDefinedType

if TYPE_CHECKING:
    from sqlalchemy import Dialect

OPEN_RUN = "open_run"
"""The key of ``meta`` whose presence means that a run has locked the store, or died while it was locked."""
OPEN_LOG = "open_run_log"
"""The key of ``meta`` that is only in the write-ahead log while the run lives. A file with this key has all writes of the run.
"""
SCHEMA_VERSION = 6
"""The schema version. It is increased with every change of a table; from the first release on, each increase comes with a step
that upgrades older stores. Stores of other versions are rejected."""

RESCORING = "rescoring"
"""The key of ``meta`` that is present while retired rows wait to be scored again; its value is the first row's number."""


SIGNALS = "signals"
"""The key of ``meta`` with the declaration of signals and answer classes, as :class:`~vinelm.traces.SignalRecord`."""


CHECKPOINTS = "checkpoints"
"""The key of ``meta`` with the fsspec address of checkpoints' contents if they are not in the store."""


class Score(UserDefinedType[Any]):
    """The column type of a flag or a number between 0 and 1; in SQLite it is BOOLEAN.

    SQLAlchemy's Boolean does not accept numbers.
    """

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Return the column type for SQLite."""
        return "BOOLEAN"

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """Return a function that converts flags to numbers for PostgreSQL, where their types differ; None for SQLite."""
        return number_of_flag if dialect.name == "postgresql" else None


def number_of_flag(value: Any) -> float | None:
    """Return a flag or score as a number, because PostgreSQL needs one type for both; None stays None."""
    return None if value is None else float(value)


@compiles(Score, "postgresql")
def _postgres_score(_type: Any, _compiler: Any, **_: Any) -> str:
    return "DOUBLE PRECISION"


metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column(
        "key",
        String,
        primary_key=True,
        comment="schema_version, identity; last_run: settings of the last run; open_run, unfinished_run: of a run that has not "
        "completed; rescoring: retired rows wait to be scored again; signals: what signals and classes were made with; "
        "checkpoints: where their contents are, if not in the store; only_failures: the next run executes all rows again; "
        "prompt_key: of the hashes in prompts",
    ),
    Column("value", String, nullable=False, comment="the value, JSON text"),
    comment="The store's current identity (workflow, template, catalog, dataset, fingerprint) and the state of runs.",
)


requests = Table(
    "requests",
    metadata,
    Column("request_id", String, primary_key=True, comment="the request's own id in the dataset"),
    Column("digest", String, nullable=False, comment="hash of its dataset row, labels included"),
    Column("input_digest", String, comment="hash of what the graph is invoked with; NULL: unknown"),
    comment="The requests that a profile was asked to sample from, executed or not.",
)

observations = Table(
    "observations",
    metadata,
    Column("row_id", Integer, primary_key=True, autoincrement=True, comment="order in which rows were added"),
    Column("request_id", String, nullable=False, comment="the request"),
    Column("prefix", String, nullable=False, comment="models of all invocations so far, JSON list; the last is this row's own"),
    Column("model", String, nullable=False, comment="the last model of the prefix, for plain SQL"),
    Column("depth", Integer, nullable=False, comment="position of the invocation in the request, from 1"),
    Column("stage", String, nullable=False, comment="the stage that ran"),
    Column("success", Score(), comment="whether the answer is right by the ground truth, or its score in 0..1; NULL: unknown"),
    Column("stopped", Boolean, comment="whether the workflow's own check ended the request here; NULL: unknown"),
    Column("cost_usd", Float, nullable=False, comment="dollars of the stage's model calls, failed attempts included"),
    Column("latency_s", Float, comment="seconds of the stage on the request's clock; NULL: unknown, as of a call in a batch"),
    Column("tool_cost_usd", Float, nullable=False, comment="dollars of the tools between this stage and the next"),
    Column("tool_latency_s", Float, nullable=False, comment="seconds of the tools between this stage and the next"),
    Column("tokens_in", Integer, comment="prompt tokens of all calls; NULL: unknown"),
    Column("tokens_out", Integer, comment="generated tokens of all calls; NULL: unknown"),
    Column("tokens_cached", Integer, comment="the part of tokens_in served from a prompt cache; NULL: unknown"),
    Column(
        "tokens_estimated",
        Boolean,
        nullable=False,
        comment="token counts are estimated from text length, not reported by the provider",
    ),
    Column("ttft_s", Float, comment="seconds to the first token of the first call; NULL: not measured"),
    Column("calls", Integer, nullable=False, comment="model calls inside the invocation"),
    Column("retries", Integer, nullable=False, comment="failed attempts before the calls that counted"),
    Column("in_flight", Integer, nullable=False, comment="other calls on the same engine when this one started"),
    Column("failure", String, comment="failure kind; NULL: the invocation succeeded"),
    Column("detail", String, comment="one line about the failure, without prompt or key"),
    Column(
        "identity_id",
        Integer,
        nullable=False,
        server_default=text("1"),
        comment="what the row was executed with, key into identities",
    ),
    Column("recorded_usd", Float, comment="cost_usd as it was charged, if a price has changed since"),
    Column("arm", String, comment="on a template that branches the stage that came next; NULL: the end"),
    Column("signal", String, comment="what the workflow's signal said after the invocation; NULL: nothing"),
    Column("answer", String, comment="the state's keys that answer= names, JSON text; NULL: no answer"),
    Column("answer_digest", String, comment="sha256 of the answer's JSON text; NULL: no answer"),
    Column(
        "answer_class",
        Integer,
        comment="class of equal answers within the request, from 0, by depth and prefix; NULL: no answer",
    ),
    Column(
        "is_continued",
        Boolean,
        nullable=False,
        server_default=false(),
        comment="the workflow's own check had passed an answer before this one, and the path went on",
    ),
    Column("sampler", String, comment="the sampler that bought the row; NULL: unknown"),
    Column("round", Integer, comment="the sampler's round, from 0; NULL: unknown"),
    Column(
        "probability",
        Float,
        comment="of proposing the path that bought the row, given what was known then; NULL: unknown",
    ),
    Column(
        "list_usd",
        Float,
        comment="cost_usd at ordinary prices, where calls were bought in a batch; NULL: cost_usd is",
    ),
    UniqueConstraint("request_id", "prefix", name="one_row_per_cell"),
    comment="One stage invocation of one request, the tools after it included.",
)

identities = Table(
    "identities",
    metadata,
    Column("identity_id", Integer, primary_key=True, autoincrement=True, comment="order in which runs first had them"),
    Column("value", String, nullable=False, comment="workflow, template, catalog, dataset and fingerprint, JSON text"),
    Column("since", String, nullable=False, comment="when, ISO time in UTC"),
    comment="Every identity that the store has had; the current one is also in meta.",
)

retired = Table(
    "retired",
    metadata,
    Column("retired_id", Integer, primary_key=True, autoincrement=True, comment="order in which rows were retired"),
    *(Column(column.name, column.type, nullable=column.nullable, comment=column.comment) for column in observations.columns),
    Column("request_digest", String, comment="hash of the request's dataset row when the row was scored"),
    Column("input_digest", String, comment="hash of what the graph was invoked with; NULL: unknown"),
    Column("scored_id", Integer, nullable=False, comment="whose scorer decided success, key into identities"),
    Column("unscored_id", Integer, comment="whose scorer failed on its state, key into identities; NULL: none"),
    Column("state", String, comment="key into blobs: the workflow state after the row; NULL: not kept"),
    Column("reason", String, nullable=False, comment="why the row no longer holds"),
    Column("retired_at", String, nullable=False, comment="when, ISO time in UTC"),
    Index("retired_by_state", "state"),
    comment="Rows that no longer hold because something that decides them has changed. Nothing is estimated from them; they "
    "are used again when the change is undone.",
)

blobs = Table(
    "blobs",
    metadata,
    Column("digest", String, primary_key=True, comment="sha256 of the uncompressed content"),
    Column("content", LargeBinary, nullable=False, comment="zlib-compressed serialized workflow state; empty: kept elsewhere"),
    comment="Contents of checkpoints; equal contents are stored once.",
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("request_id", String, primary_key=True, comment="the request"),
    Column("prefix", String, primary_key=True, comment="the prefix that the state follows, JSON list"),
    Column("digest", String, nullable=False, comment="key into blobs"),
    Index("checkpoints_by_digest", "digest"),
    comment="The workflow state after each row that did not fail: extensions resume from it, and it can be scored again.",
)

ledger = Table(
    "ledger",
    metadata,
    Column("entry_id", Integer, primary_key=True, autoincrement=True, comment="order of reservation"),
    Column("request_id", String, nullable=False, comment="the unit's request"),
    Column("prefix", String, nullable=False, comment="the unit's prefix, JSON list"),
    Column("reserved_usd", Float, nullable=False, comment="upper bound, reserved before the call"),
    Column("settled_usd", Float, comment="actual cost; NULL: in flight"),
    Column("is_abandoned", Boolean, nullable=False, comment="the run died during the call: charged at the upper bound"),
    Column(
        "is_batched",
        Boolean,
        nullable=False,
        server_default=false(),
        comment="all its calls go in batches, which a run that follows fetches: its entry replaces this one",
    ),
    comment="Spending: every call has an entry, written before it is made.",
)

sources = Table(
    "sources",
    metadata,
    Column("source_id", Integer, primary_key=True, autoincrement=True, comment="order in which sources were added"),
    Column(
        "kind",
        String,
        nullable=False,
        comment="import (a table of recorded outcomes or an export), merge (another store) or reprice (another store's rows at "
        "other prices)",
    ),
    Column("name", String, nullable=False, comment="the file's name, without its folder"),
    Column("digest", String, nullable=False, comment="sha256 of the imported file; of the merged or repriced store's rows"),
    Column("row_count", Integer, nullable=False, comment="number of rows added; reprice: whose dollars changed"),
    Column("added_at", String, nullable=False, comment="when, ISO time in UTC"),
    comment="Origin of imported, merged and repriced rows.",
)


batches = Table(
    "batches",
    metadata,
    Column("batch_id", Integer, primary_key=True, autoincrement=True, comment="order in which they were recorded"),
    Column("key", String, nullable=False, comment="ours: in the batch's metadata, and in the name of each of its calls"),
    Column("model", String, nullable=False, comment="of its calls, the catalog's name"),
    Column("provider_id", String, comment="the provider's; NULL: not known to be submitted"),
    Column("calls", Integer, nullable=False, comment="number of its calls"),
    Column("is_closed", Boolean, nullable=False, comment="it has ended, and its answers are stored"),
    Column("recorded_s", Float, nullable=False, comment="when it was recorded, before it was submitted: seconds since 1970"),
    comment="Batches of model calls that `vinelm profile --batch-prices` bought.",
)

batch_calls = Table(
    "batch_calls",
    metadata,
    Column("digest", String, primary_key=True, comment="sha256 of the cell, the call's request and its number"),
    Column("batch_id", Integer, nullable=False, comment="key into batches"),
    Column("request_id", String, nullable=False, comment="the unit's request"),
    Column("prefix", String, nullable=False, comment="the unit's prefix, JSON list"),
    Column("upper_usd", Float, nullable=False, comment="the most that the call may cost"),
    Column("answer", String, comment="what the provider answered, JSON text; NULL: not known yet"),
    Index("batch_calls_by_cell", "request_id", "prefix"),
    comment="Calls in batches whose cells have no row yet: a run that dies fetches them.",
)


def set_meta(connection: Connection, key: str, value: str) -> None:
    """Set the value of a key in the table ``meta``, in the caller's transaction."""
    statement = insert(meta).values(key=key, value=value)
    connection.execute(statement.on_conflict_do_update(index_elements=["key"], set_={"value": value}))
