"""Exports a store's rows to a table for other tools, and imports such a table.

The store's identity, its requests, spending that belongs to no row, and tool calls go into a sidecar file ``FILE.store.json``
(CSV) or into the file's metadata (Parquet). Checkpoints are not exported.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Boolean, Float, Integer, func, select

from vinelm.errors import DatasetError, StoreError, VineLMError
from vinelm.io.arrow_tables import parquet_note, write_parquet
from vinelm.io.reading import open_regular, read_text
from vinelm.io.tables import Row, kind_of, read_table, write_csv
from vinelm.rows.observation import Cell, Observation
from vinelm.traces.databases import schema
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.store.atomic import new_store, replaced
from vinelm.traces.store.judgements import Judgements
from vinelm.traces.store.kinds import request_kinds, set_request_kinds
from vinelm.traces.store.prompts import StoredPrompts, prompt_tokens
from vinelm.traces.store.rows import FIELDS, cell_name, decode_prefix, encode_prefix, misfit, read_rows
from vinelm.traces.store.shown import ShownRows, SignalRecord, record_of
from vinelm.traces.store.store import ObservationStore
from vinelm.traces.store.tool_rows import add_tool_rows, tool_rows

NOTE = "vinelm.store"
_FORMAT = 1
_PREFIX = FIELDS.index("prefix")
PROMPT_TOKENS = ("prompt_tokens_static", "prompt_tokens_shared")
"""The columns of an export that no import reads, because they are computed from all prompts of the store."""
_KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {}


def side_file(table: Path) -> Path:
    """Return the path of the JSON file that accompanies a CSV export."""
    return table.with_name(f"{table.name}.store.json")


def file_digest(path: Path) -> str:
    """Return the sha256 of the file's bytes, in hex; raise :class:`DatasetError` if the file cannot be read."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DatasetError(f"{path}: cannot read the table: {error.strerror}") from error


# -- export ----------------------------------------------------------------------------------------------------


def export_store(store: ObservationStore, path: Path) -> int:
    """Write all rows to ``path`` (``.csv``, ``.csv.gz`` or ``.parquet``), replacing the file, and return their number.

    The rows are a consistent snapshot, even while a run is writing.

    Raises:
        ConfigError: the extension is not supported, or pyarrow is not installed.
        StoreError: the file cannot be written, or a judge scored the rows; an older file at ``path`` stays.
    """
    kind = kind_of(path, ("csv", "parquet"))
    if Judgements(store).are_in_force:
        raise StoreError(f"{store.path}: a judge scored its rows, which an export does not say: copy the file, or merge stores")
    with store.database.transaction() as connection:
        rows = list(read_rows(connection))
        tokens = prompt_tokens(rows, StoredPrompts(store).read())
        document = {
            "format": _FORMAT,
            "rows": len(rows),
            "identity": store.identity.to_dict(),
            "requests": [list(r) for r in connection.execute(select(schema.requests.c.request_id, schema.requests.c.digest))],
        }
        document["other_spending"], unpaid = _spending_without_row(
            connection.execute(select(*_LEDGER).order_by(_ENTRY)).all(), connection.execute(_CHARGED).all()
        )
        signals = record_of(connection)
        tools = [dict(row) for rows in tool_rows(connection).values() for row in rows]
        more = {"unpaid": unpaid, "signals": signals and asdict(signals), "tool_calls": tools}
        document |= {name: found for name, found in more.items() if found}
    document["kinds"] = request_kinds(store)
    if kind == "parquet":
        graded = {"success": "float"} if any(isinstance(row.success, float) for row in rows) else {}
        columns = {name: _KINDS[name][0] for name in FIELDS} | graded | dict.fromkeys(PROMPT_TOKENS if tokens else (), "int")
        with replaced(path) as draft:
            write_parquet(draft, columns, _with_prompts(_typed, rows, tokens), notes={NOTE: _text(document)}, shown_as=path)
        return len(rows)
    with replaced(path) as draft, replaced(side_file(path)) as side:
        names = (*FIELDS, *(PROMPT_TOKENS if tokens else ()))
        write_csv(draft, names, _with_prompts(_flat, rows, tokens), is_gzipped=path.suffix == ".gz")
        side.write_text(_text({**document, "sha256": file_digest(draft)}), encoding="utf-8")
    return len(rows)


_LEDGER = tuple(schema.ledger.c[n] for n in ("request_id", "prefix", "reserved_usd", "settled_usd", "is_abandoned"))
_ENTRY = schema.ledger.c.entry_id


_ROW = schema.observations.c
_CHARGED = select(_ROW.request_id, _ROW.prefix, func.coalesce(_ROW.recorded_usd, _ROW.cost_usd) + _ROW.tool_cost_usd)


def _spending_without_row(entries: Sequence[Any], charged: Sequence[Any]) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """Return the ledger entries that belong to no row, and [request, prefix] of each row with a cost but no ledger entry.

    Args:
        entries: the entries of the ledger.
        charged: for each row its request, prefix and charged dollars.
    """
    paid = Counter((row[0], decode_prefix(row[1]), row[2]) for row in charged)
    others = []
    for entry in entries:
        key = (entry.request_id, decode_prefix(entry.prefix), entry.settled_usd)
        if paid[key] and not entry.is_abandoned:
            paid[key] -= 1
        else:
            others.append(dict(entry._mapping))
    return others, [[request, list(prefix)] for request, prefix, usd in paid.elements() if usd]


def _with_prompts(
    values_of: Callable[[Observation], list[Any]], rows: Sequence[Observation], tokens: Mapping[Cell, tuple[int, int]]
) -> Iterator[list[Any]]:
    """Yield the values of each row, followed by two numbers of prompt tokens: static tokens, and tokens shared with other
    requests.

    Both numbers are None for a row that ``tokens`` lacks. If ``tokens`` is empty, they are left out of every row.

    Args:
        values_of: Returns the values of a row.
        rows: The rows.
        tokens: The two numbers, keyed by (request, prefix); see :func:`~vinelm.traces.store.prompts.prompt_tokens`.
    """
    for row in rows:
        yield [*values_of(row), *(tokens.get((row.request_id, row.prefix), (None, None)) if tokens else ())]


def _typed(row: Observation) -> list[Any]:
    return [list(row.prefix) if name == "prefix" else _known(row, name) for name in FIELDS]


def _flat(row: Observation) -> list[Any]:
    values = [_known(row, name) for name in FIELDS]
    values[_PREFIX] = encode_prefix(row.prefix)
    return [int(value) if isinstance(value, bool) else value for value in values]


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, indent=1, default=str) + "\n"


# -- import ----------------------------------------------------------------------------------------------------


def is_export(table: Path) -> bool:
    """Return whether ``table`` has the sidecar file or metadata that :func:`export_store` writes."""
    if kind_of(table) == "parquet":
        return table.exists() and parquet_note(table, NOTE) is not None
    return side_file(table).exists()


def import_export(table: Path, path: Path) -> int:
    """Create the store at ``path`` from an export, all or nothing, and return the number of rows.

    Args:
        table: the path of a file that :func:`export_store` wrote.
        path: the store to create.

    Raises:
        DatasetError: the file is not an export, or a row does not fit the store's workflow; the message names file and line.
        StoreError: ``path`` exists, or cannot be written.
    """
    exported, digest = _exported(table), file_digest(table)
    template = exported.identity.bound_template()
    if exported.table_digest not in {None, digest}:
        raise DatasetError(
            f"{table}: not the table that {exported.where.name} was written with: export again, or delete its sha256 entry to "
            "import an edited table"
        )
    seen: dict[tuple[str, tuple[str, ...]], int] = {}

    def rows() -> Iterator[Observation]:
        for line, row in read_table(table):
            observation = _observation(row, f"{table}:{line}")
            problem = misfit(observation, template)
            if observation.request_id not in exported.requests:
                problem = "the exported store has no such request"
            key = (observation.request_id, observation.prefix)
            if key in seen:
                problem = f"this cell is on line {seen[key]} too"
            seen[key] = line
            if problem:
                raise DatasetError(f"{table}:{line}: {cell_name(*key)}: {problem}: fix or delete the line")
            yield observation

    with new_store(path, exported.identity) as store:
        store.register_digests(exported.requests)
        count = store.add_many(rows(), unpaid=exported.unpaid)
        store.add_entries(exported.others)
        if exported.signals is not None:
            ShownRows(store).set_classes({}, exported.signals)
        set_request_kinds(store, exported.kinds)
        with store.database.transaction() as connection:
            try:
                add_tool_rows(connection, exported.tools)
            except ValueError as error:
                raise DatasetError(f"{exported.where}: its tool calls are none ({error}): export the store again") from None
        store.record_source("import", table.name, digest, count)
    return count


@dataclass(frozen=True)
class _Exported:
    """The contents of an export except its rows.

    Attributes:
        where: the file from which the contents were read.
        identity: the identity of the exported store.
        requests: the digest of each request, by request id.
        others: the ledger entries that belong to no row.
        unpaid: (request, prefix) of the rows without a ledger entry; the entry of another row, or a separate entry, has their
            cost.
        signals: the declarations of signals and answer classes; None if nothing was declared.
        kinds: the type of each request, by request id.
        tools: the rows of the table of tool calls.
        table_digest: the digest that the table must have; None checks no digest.
    """

    where: Path
    identity: StoreIdentity
    requests: dict[str, str]
    others: list[dict[str, Any]]
    unpaid: frozenset[Cell]
    signals: SignalRecord | None
    kinds: dict[str, str]
    tools: list[dict[str, Any]]
    table_digest: str | None


def _exported(table: Path) -> _Exported:
    document, where = _document(table)
    try:
        identity = StoreIdentity(**document["identity"])
        identity.bound_template()
        return _Exported(
            where,
            identity,
            {str(request): str(digest) for request, digest in document["requests"]},
            [dict(entry) for entry in document["other_spending"]],
            frozenset((str(request), tuple(map(str, prefix))) for request, prefix in document.get("unpaid", ())),
            SignalRecord.of_plain(document["signals"]) if "signals" in document else None,
            {str(request): str(kind) for request, kind in document.get("kinds", {}).items()},
            [dict(row) for row in document.get("tool_calls", ())],
            document.get("sha256"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DatasetError(f"{where}: not an export of a store: export the store again") from error


def _document(table: Path) -> tuple[dict[str, Any], Path]:
    is_parquet = kind_of(table) == "parquet"
    where = table if is_parquet else side_file(table)
    try:
        text = parquet_note(table, NOTE) if is_parquet else read_text(where)
        document = json.loads(text or "")
    except (OSError, ValueError) as error:
        raise DatasetError(f"{where}: not an export of a store: export the store again") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        found = document.get("format") if isinstance(document, dict) else None
        raise DatasetError(
            f"{where}: unknown export format {found} (this version reads {_FORMAT}): import it with the VineLM that wrote it"
        )
    return document, where


def _observation(row: Row, where: str) -> Observation:
    values: dict[str, Any] = {}
    for name in FIELDS:
        if name not in row:
            raise DatasetError(f"{where}: no column {name!r}: the table must have {', '.join(FIELDS)}")
        value = row[name]
        try:
            values[name] = None if value is None else _KINDS[name][1](value)
        except (ValueError, TypeError):
            raise DatasetError(f"{where}: {name} is {value!r}: expected {_KINDS[name][0]}") from None
        if values[name] is None and not schema.observations.c[name].nullable:
            raise DatasetError(f"{where}: {name} is empty: it must have a value")
    if values["latency_s"] is None:
        values["latency_s"] = math.nan
    try:
        return Observation(**values)
    except VineLMError as error:
        raise DatasetError(f"{where}: {error}") from error


def _known(row: Observation, name: str) -> Any:
    """Return the value of the field ``name`` of a row; None for ``latency_s`` if the call's duration was not recorded."""
    return None if name == "latency_s" and not row.is_timed else getattr(row, name)


def _flag(value: Any) -> bool:
    if value not in (0, 1, "0", "1"):
        raise ValueError
    return bool(int(value))


def _score(value: Any) -> bool | float:
    """Return the flag (as a bool), or the score between 0 and 1, that is written in a field of the table."""
    if isinstance(value, bool) or value in ("0", "1"):
        return _flag(value)
    score = float(value)
    if not 0.0 <= score <= 1.0:
        raise ValueError
    return score if 0.0 < score < 1.0 else score == 1.0


def _prefix(value: Any) -> tuple[str, ...]:
    models = json.loads(value) if isinstance(value, str) else value
    if not isinstance(models, list) or not all(isinstance(model, str) for model in models):
        raise ValueError
    return tuple(models)


def _kind(name: str) -> tuple[str, Callable[[Any], Any]]:
    column = schema.observations.c[name].type
    if name == "prefix":
        return "list", _prefix
    if name == "success":
        return "bool", _score
    if isinstance(column, Boolean):
        return "bool", _flag
    if isinstance(column, Integer):
        return "int", int
    return ("float", float) if isinstance(column, Float) else ("string", str)


_KINDS.update({name: _kind(name) for name in FIELDS})
