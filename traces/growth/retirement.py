"""Moves rows, with their states, between the tables ``observations`` and ``retired`` in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Float, RowMapping, bindparam, case, func, select, text, update

from vinelm.template import Template
from vinelm.traces.databases import schema
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.growth.plan import RecordedCost, RequestDigest, RowRules, StoredRow
from vinelm.traces.store.rows import decode_prefix

_COLUMNS = ", ".join(column.name for column in schema.observations.columns)
_BUT_ID = ", ".join(column.name for column in schema.observations.columns if column.name != "row_id")
_STATE = (
    "SELECT digest FROM checkpoints WHERE checkpoints.request_id = observations.request_id "
    "AND checkpoints.prefix = observations.prefix"
)
# Built only from our own column names. Many rows in one statement.
_RETIRE = (
    "WITH gone (row_id, request_digest, input_digest, reason) AS (VALUES {values}) "  # noqa: S608
    f"INSERT INTO retired ({_COLUMNS}, request_digest, input_digest, scored_id, state, reason, retired_at) "
    f"SELECT {', '.join(f'observations.{name}' for name in _COLUMNS.split(', '))}, gone.request_digest, gone.input_digest, "
    f":scored_id, ({_STATE}), gone.reason, :at FROM observations JOIN gone ON gone.row_id = observations.row_id "
    "ORDER BY observations.row_id"
)
_RETIRE_TYPES = ("INTEGER", "VARCHAR", "VARCHAR", "VARCHAR")
_GONE = "(WITH gone (row_id) AS (VALUES {values}) SELECT row_id FROM gone)"
_GONE_CELLS = f"(SELECT request_id, prefix FROM observations WHERE row_id IN {_GONE})"  # noqa: S608
_FORGET_STATE = f"DELETE FROM checkpoints WHERE (request_id, prefix) IN {_GONE_CELLS}"  # noqa: S608
_FORGET = f"DELETE FROM observations WHERE row_id IN {_GONE}"  # noqa: S608
_BACK = "WITH back (place, retired_id) AS (VALUES {values}) "
_RESTORE = (
    f"{_BACK}INSERT INTO observations ({_BUT_ID}) SELECT {_BUT_ID} FROM retired "  # noqa: S608
    "JOIN back ON back.retired_id = retired.retired_id ORDER BY back.place"
)
_RESTORE_STATE = (
    f"{_BACK}INSERT INTO checkpoints (request_id, prefix, digest) SELECT request_id, prefix, state FROM retired "  # noqa: S608
    "JOIN back ON back.retired_id = retired.retired_id WHERE state IS NOT NULL ORDER BY back.place"
)
_FORGET_RETIRED = f"{_BACK}DELETE FROM retired WHERE retired_id IN (SELECT retired_id FROM back)"  # noqa: S608
_RESTORE_TYPES = ("INTEGER", "INTEGER")
_ROWS_AT_ONCE = 1000


def request_digests(connection: Connection) -> dict[str, RequestDigest]:
    """Return the digests of the requests that are registered in the store, by request id."""
    table = schema.requests.c
    found = connection.execute(select(table.request_id, table.digest, table.input_digest))
    return {row.request_id: RequestDigest(row.digest, row.input_digest) for row in found}


def current_rows(connection: Connection, scored_id: int, digests: Mapping[str, RequestDigest]) -> list[StoredRow]:
    """Return the store's current rows, in the order in which they were written.

    Args:
        connection: a connection in a transaction.
        scored_id: the number of the identity under which the rows' success was computed.
        digests: the digests of the rows' requests, by request id.
    """
    rows, states = schema.observations, schema.checkpoints
    state = select(states.c.digest).where(states.c.request_id == rows.c.request_id, states.c.prefix == rows.c.prefix)
    query = select(rows, state.scalar_subquery().label("state")).order_by(rows.c.row_id)
    unknown = RequestDigest(None, None)
    found = [row._mapping for row in connection.execute(query)]
    stages = _stages(found)
    return [_stored(row, row["row_id"], scored_id, digests.get(row["request_id"], unknown), stages) for row in found]


def retired_rows(connection: Connection) -> list[StoredRow]:
    """Return the retired (no longer used) rows of the store, in the order of retirement."""
    rows, retired = schema.observations, schema.retired
    found = [row._mapping for row in connection.execute(select(retired).order_by(retired.c.retired_id))]
    before = connection.execute(select(rows.c.request_id, rows.c.prefix, rows.c.stage)) if found else ()
    stages = _stages([*found, *(row._mapping for row in before)])
    return [
        _stored(row, row["retired_id"], row["scored_id"], RequestDigest(row["request_digest"], row["input_digest"]), stages)
        for row in found
    ]


def identities(connection: Connection) -> dict[int, StoreIdentity]:
    """Return the store's identities, the current one and all earlier ones, by number."""
    return {row.identity_id: StoreIdentity.from_json(row.value) for row in connection.execute(select(schema.identities))}


def next_retired_id(connection: Connection) -> int:
    """Return the number that the next row to be retired (stored but no longer used) will get."""
    return int(connection.execute(select(func.coalesce(func.max(schema.retired.c.retired_id), 0))).scalar_one()) + 1


def retire(
    connection: Connection, rows: Sequence[tuple[int, str]], *, scored_id: int, digests: Mapping[str, RequestDigest]
) -> None:
    """Retire current rows, that is, stop using them: move them, with their states, to the table ``retired``.

    Args:
        connection: a connection in a transaction.
        rows: for each row its number, and why it is retired.
        scored_id: the number of the identity under which the rows' success was computed.
        digests: the digests of the rows' requests, by request id.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds")
    table = schema.observations.c
    of_row = {row.row_id: row.request_id for row in connection.execute(select(table.row_id, table.request_id))}
    unknown = RequestDigest(None, None)
    values = []
    for row_id, reason in sorted(rows):
        digest = digests.get(of_row[row_id], unknown)
        values.append((row_id, digest.full, digest.inputs, reason))
    for first in range(0, len(values), _ROWS_AT_ONCE):
        some = values[first : first + _ROWS_AT_ONCE]
        _run(connection, _RETIRE, some, _RETIRE_TYPES, {"scored_id": scored_id, "at": at})
        for statement in (_FORGET_STATE, _FORGET):
            _run(connection, statement, [value[:1] for value in some], _RETIRE_TYPES[:1])


def restore(connection: Connection, retired_ids: Iterable[int]) -> int:
    """Make retired (no longer used) rows current again, together with their states; return the number of these rows.

    ``retired_ids`` are the numbers of the rows.
    """
    ids = list(enumerate(retired_ids))
    for first in range(0, len(ids), _ROWS_AT_ONCE):
        some = ids[first : first + _ROWS_AT_ONCE]
        for statement in (_RESTORE, _RESTORE_STATE, _FORGET_RETIRED):
            _run(connection, statement, some, _RESTORE_TYPES)
    return len(ids)


def _run(
    connection: Connection,
    statement: str,
    rows: Sequence[tuple[Any, ...]],
    types: Sequence[str],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Execute a SQL statement in which ``{values}`` stands for a list of rows.

    Args:
        connection: a connection in a transaction.
        statement: the SQL text.
        rows: the values of each row.
        types: the SQL type of each column of the rows.
        more: further parameters of the statement, by name.
    """
    names = [[f"v{place}_{column}" for column in range(len(types))] for place in range(len(rows))]
    one = "({})".format(", ".join(f"CAST(:{{}} AS {kind})" for kind in types))
    values = {name: value for some, row in zip(names, rows, strict=True) for name, value in zip(some, row, strict=True)}
    connection.execute(
        text(statement.format(values=", ".join(one.format(*some) for some in names))), {**values, **(more or {})}
    )


def reprice(connection: Connection, rules: RowRules, rows: Iterable[StoredRow]) -> tuple[int, int]:
    """Recompute the cost of current rows at the current prices; the charged dollars stay in ``recorded_usd``.

    Returns:
        The number of rows that changed, and the number of rows that keep their cost despite a new price, for lack of tokens.
    """
    table = schema.observations
    changes, unpriced = [], 0
    for row in rows:
        cost_usd = rules.cost_usd(row)
        if cost_usd is None:
            unpriced += 1
            cost_usd = row.cost.cost_usd
        if cost_usd != row.cost_usd:
            is_recorded = cost_usd == row.cost.cost_usd
            changes.append(
                {"row": row.row_id, "now": cost_usd, "recorded": None if is_recorded else row.cost.cost_usd},
            )
    if changes:
        change = update(table).where(table.c.row_id == bindparam("row"))
        # The ratio of a batch's price to the ordinary one stays; the old dollars are read before the new ones are set.
        listed = case((table.c.cost_usd > 0, table.c.list_usd * bindparam("now", type_=Float) / table.c.cost_usd), else_=0.0)
        values: dict[str, Any] = {"cost_usd": bindparam("now"), "recorded_usd": bindparam("recorded")}
        values["list_usd"] = case((table.c.list_usd.is_not(None), listed), else_=None)
        connection.execute(change.values(values), changes)
    return len(changes), unpriced


def set_arms(connection: Connection, before: Mapping[int, Template], now: Template) -> None:
    """Record which stage came next after rows that lack this information, because their template allowed only one stage there.

    This is needed only where the new template allows several stages.

    Args:
        connection: a connection in a transaction.
        before: the templates under which rows were executed, by the number of the identity.
        now: the current template.
    """
    table = schema.observations
    went_on = (table.c.arm.is_(None), table.c.failure.is_(None), table.c.stopped.is_(False))
    for number, template in before.items():
        for depth in range(1, template.depth):
            stage = template.stage_after(depth)
            arm = None if stage is None else now.noted(stage.name)
            if arm is not None:
                which = (table.c.identity_id == number, table.c.depth == depth, *went_on)
                connection.execute(update(table).where(*which).values(arm=arm))


def _stages(rows: Iterable[RowMapping]) -> dict[tuple[str, tuple[str, ...]], str]:
    return {(row["request_id"], decode_prefix(row["prefix"])): row["stage"] for row in rows}


def _stored(
    row: RowMapping,
    row_id: int,
    scored_id: int,
    request: RequestDigest,
    stages: Mapping[tuple[str, tuple[str, ...]], str],
) -> StoredRow:
    request_id, prefix = row["request_id"], decode_prefix(row["prefix"])
    charged = row["cost_usd"] if row["recorded_usd"] is None else row["recorded_usd"]
    return StoredRow(
        row_id=row_id,
        cell=(request_id, prefix),
        stages=(*(stages.get((request_id, prefix[:k])) for k in range(1, len(prefix))), row["stage"]),
        arm=row["arm"],
        success=row["success"],
        stopped=row["stopped"],
        failure=row["failure"],
        cost=RecordedCost(charged, row["calls"], row["tokens_in"], row["tokens_out"], row["tokens_cached"]),
        cost_usd=row["cost_usd"],
        identity_id=row["identity_id"],
        scored_id=scored_id,
        request=request,
        has_state=row["state"] is not None,
        unscored_id=row.get("unscored_id"),
        reason=row.get("reason"),
        is_continued=bool(row["is_continued"]),
    )
