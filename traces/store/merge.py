"""Merges several stores of one workflow into a new one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from vinelm.errors import StoreError
from vinelm.rows.observation import Observation
from vinelm.traces.databases import schema
from vinelm.traces.databases.address import file_of
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.databases.lock import run_lock
from vinelm.traces.store.atomic import new_store
from vinelm.traces.store.checkpoints import ELSEWHERE
from vinelm.traces.store.judgements import copy_judgements
from vinelm.traces.store.kinds import request_kinds, set_request_kinds
from vinelm.traces.store.prompts import copy_prompts
from vinelm.traces.store.rows import cell_name, encode_prefix, read_rows, values_of
from vinelm.traces.store.shown import common_record, unite_shown
from vinelm.traces.store.store import ObservationStore, number_of
from vinelm.traces.store.summary import contents_of
from vinelm.traces.store.tool_rows import copy_tool_rows

Entry = tuple[Any, ...]
_ENTRY = ("request_id", "prefix", "reserved_usd", "settled_usd", "is_abandoned")


@dataclass(frozen=True)
class Merged:
    """Result of :func:`merge_stores`.

    Attributes:
        rows: the number of rows in the new store.
        added: for each input, in order, the number of these rows that came from it.
        without_shapes: for each input, the number of rows whose prompt hashes were left out. Hashes made with different keys
            cannot be compared.
    """

    rows: int
    added: tuple[int, ...]
    without_shapes: tuple[int, ...] = ()


def merge_stores(inputs: Sequence[Path], path: Path) -> Merged:
    """Create the store at ``path`` from all rows, checkpoints, ledger entries and tool calls of ``inputs``, all or nothing.

    The inputs are not changed; rows keep their order. Inputs may have rows of the same request and prefix if these rows are
    equal, as in copies of one store that were continued separately. The first of these inputs determines which sampler bought
    the row. The cost of such a row counts once, and so does the common beginning of two ledgers. Retired rows are copied as
    retired. Answer classes of requests that occur in several inputs are recomputed by the next profile, and so are all signals
    if the inputs declare different ones. If inputs give a request different types, the first counts until a profile sets types
    again. Tool calls of a session that two inputs share are copied once; see
    :func:`~vinelm.traces.store.tool_rows.copy_tool_rows`.

    Args:
        inputs: two or more stores with the same current identity.
        path: the store to create.

    Raises:
        StoreError: the inputs differ in identity, a run has locked one of them, a request changed between them, a request and
            prefix have two different rows (the first pair is named), or ``path`` exists.
    """
    _require_several(inputs)
    with ExitStack() as stack:
        stores = [stack.enter_context(ObservationStore.open(source)) for source in inputs]
        first = stores[0].identity
        for store in stores[1:]:
            difference = first.difference(store.identity)
            if difference:
                raise StoreError(f"{store.path} cannot be merged with {stores[0].path}: {difference}")
        for store in stores:
            stack.enter_context(run_lock(file_of(store.path, "a merge")))
            if contents_of(store).waiting:
                raise StoreError(f"{store.path}: some of its rows wait to be scored again: profile with it first")
        with new_store(path, first) as merged:
            added, without = _copy_stores(stores, merged)
            unite_shown(stores, merged)
            set_request_kinds(merged, {name: kind for store in reversed(stores) for name, kind in request_kinds(store).items()})
        return Merged(sum(added), tuple(added), tuple(without))


def _require_several(inputs: Sequence[Path]) -> None:
    if len(inputs) < 2:
        raise StoreError("a merge needs at least two stores: add another")
    real = [source.resolve() for source in inputs]
    for i, source in enumerate(inputs):
        if real[i] in real[:i]:
            raise StoreError(f"{source}: named twice: name each store once")


def _copy_stores(stores: Sequence[ObservationStore], merged: ObservationStore) -> tuple[list[int], list[int]]:
    """Copy all stores into ``merged``.

    Return two lists with a number for each store: how many rows it added, and how many rows lose their prompt hashes.
    """
    known: dict[tuple[str, tuple[str, ...]], tuple[Observation, Path]] = {}
    alike = common_record(stores) is not None
    digests: dict[str, str] = {}
    n_new, without, ledgers = [], list[int](), list[list[Entry]]()
    for store in stores:
        with store.database.transaction() as connection:
            for request, digest in connection.execute(select(schema.requests.c.request_id, schema.requests.c.digest)):
                if digests.setdefault(request, digest) != digest:
                    raise StoreError(f"{store.path} cannot be merged with {stores[0].path}: the request {request!r} changed")
            merged.register_digests(digests)
            rows = list(read_rows(connection))
            new = list(_new_rows(rows, known, file_of(store.path, "a merge"), alike=alike))
            with merged.database.transaction() as target:
                numbers = _copy_identities(connection, target)
                _copy_rows(connection, target, new, numbers)
                cells = {(row.request_id, row.prefix) for row in new}
                copy_judgements(connection, target, cells)
                without.append(copy_prompts(connection, target, cells))
                _copy_checkpoints(store, connection, target)
                copy_tool_rows(connection, target)
                _copy_retired(connection, target, numbers)
                # Compared by identity, since the rows equal those of an earlier store; `rows` keeps them alive.
                ledger, ids = _ledger(connection), {id(row) for row in new}
                shared = {(row.request_id, encode_prefix(row.prefix)) for row in rows if id(row) not in ids}
                entries = [dict(zip(_ENTRY, entry, strict=True)) for entry in _new_entries(ledger, ledgers, shared)]
                if entries:
                    target.execute(insert(schema.ledger), entries)
                ledgers.append(ledger)
        merged.record_source("merge", store.path.name, rows_digest(rows), len(new))
        n_new.append(len(new))
    return n_new, without


def rows_digest(rows: Sequence[Observation]) -> str:
    """Return the sha256 of a store's rows, in hex."""
    return hashlib.sha256(json.dumps([values_of(row) for row in rows], sort_keys=True).encode()).hexdigest()


def _new_rows(
    rows: Sequence[Observation],
    known: dict[tuple[str, tuple[str, ...]], tuple[Observation, Path]],
    path: Path,
    *,
    alike: bool,
) -> Iterator[Observation]:
    for row in rows:
        key = (row.request_id, row.prefix)
        other, where = known.setdefault(key, (row, path))
        if other is row:
            yield row
        elif bought(other, shown=alike) != bought(row, shown=alike):
            mine, theirs = bought(row, shown=alike), bought(other, shown=alike)
            what = next(field.name for field in fields(row) if getattr(mine, field.name) != getattr(theirs, field.name))
            values = f"{what} is {getattr(row, what)!r} and {getattr(other, what)!r}"
            raise StoreError(
                f"{path} and {where} hold different rows of {cell_name(*key)} ("
                f"{'their answers differ' if what in ('answer', 'answer_digest') else values}): keep one of the two stores, or "
                "drop the cell from an export"
            )


def bought(row: Observation, *, shown: bool) -> Observation:
    """Return the row without fields that can differ between copies of the same row in several stores.

    These fields are the answer class, sampler, round and probability; if ``shown`` is False, also the signal and the answer.
    """
    if not shown:
        row = replace(row, signal=None, answer=None, answer_digest=None)
    return replace(row, answer_class=None, sampler=None, round=None, probability=None)


def _copy_identities(source: Connection, target: Connection) -> dict[int, int]:
    """Copy the identities under which rows were executed; return each identity's new number by its old number."""
    found = source.execute(select(schema.identities).order_by(schema.identities.c.identity_id))
    return {row.identity_id: number_of(target, StoreIdentity.from_json(row.value)) for row in found}


def _copy_rows(source: Connection, target: Connection, rows: Sequence[Observation], numbers: dict[int, int]) -> None:
    table = schema.observations.c
    query = select(table.request_id, table.prefix, table.identity_id, table.recorded_usd)
    more = {(row.request_id, row.prefix): (numbers[row.identity_id], row.recorded_usd) for row in source.execute(query)}
    values = [values_of(row) for row in rows]
    for one in values:
        one["identity_id"], one["recorded_usd"] = more[one["request_id"], one["prefix"]]
    if values:
        target.execute(insert(schema.observations), values)
    known = [dict(row._mapping) for row in source.execute(select(schema.requests.c.request_id, schema.requests.c.input_digest))]
    change = update(schema.requests).where(schema.requests.c.request_id == bindparam("of"))
    given = [{"of": one["request_id"], "inputs": one["input_digest"]} for one in known if one["input_digest"] is not None]
    if given:
        target.execute(change.values(input_digest=bindparam("inputs")), given)


def _copy_retired(source: Connection, target: Connection, numbers: dict[int, int]) -> None:
    """Copy the retired rows (stored, but no longer used), except rows that both stores have retired.

    ``numbers`` maps an identity's number in the source to its number in the target.
    """
    held = {_retired_key(dict(row._mapping)) for row in target.execute(select(schema.retired))}
    for row in source.execute(select(schema.retired).order_by(schema.retired.c.retired_id)):
        values = dict(row._mapping)
        del values["retired_id"]
        for name in ("identity_id", "scored_id", "unscored_id"):
            values[name] = None if values[name] is None else numbers[values[name]]
        if _retired_key(values) not in held:
            target.execute(insert(schema.retired), values)


def _retired_key(values: dict[str, Any]) -> Entry:
    return tuple(value for name, value in values.items() if name not in ("retired_id", "row_id", "retired_at", "reason"))


def _copy_checkpoints(store: ObservationStore, source: Connection, target: Connection) -> None:
    """Copy the checkpoints into the merged store, including contents outside of the store."""
    held = set(target.execute(select(schema.blobs.c.digest)).scalars())
    for blob in source.execute(select(schema.blobs)):
        if blob.digest not in held:
            place = store.checkpoint_place
            content = place.read(blob.digest) if place is not None and blob.content == ELSEWHERE else blob.content
            target.execute(insert(schema.blobs), {"digest": blob.digest, "content": content})
    cells = {tuple(row) for row in target.execute(select(schema.checkpoints.c.request_id, schema.checkpoints.c.prefix))}
    new = [dict(r._mapping) for r in source.execute(select(schema.checkpoints)) if (r.request_id, r.prefix) not in cells]
    if new:
        target.execute(insert(schema.checkpoints), new)


def _ledger(connection: Connection) -> list[Entry]:
    query = select(*(schema.ledger.c[name] for name in _ENTRY)).order_by(schema.ledger.c.entry_id)
    return [tuple(entry) for entry in connection.execute(query)]


def _new_entries(ledger: list[Entry], earlier: Sequence[list[Entry]], shared: set[tuple[str, str]]) -> Iterator[Entry]:
    """Yield the entries of ``ledger`` that are in none of the ledgers ``earlier``.

    If it is uncertain whether they have an entry, the entry is yielded, so that spending is never understated.

    ``shared`` has (request, prefix) of the rows that an earlier store also has.
    """
    common = max((_common_length(ledger, other) for other in earlier), default=0)
    for request, prefix, reserved, settled, is_abandoned in ledger[common:]:
        if is_abandoned or settled is None or (request, prefix) not in shared:
            yield request, prefix, reserved, settled, is_abandoned


def _common_length(one: list[Entry], other: list[Entry]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
