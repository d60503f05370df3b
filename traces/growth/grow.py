"""Adapts a store to a changed workflow, dataset or catalog: valid rows stay, the other rows are retired.

Retired rows stay in the store with their ledger entries and states, but are not used. If the change is undone, they are used
again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, delete, select, update

from vinelm.errors import StoreError
from vinelm.rows.observation import Observation
from vinelm.traces.databases import schema
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.databases.schema import RESCORING
from vinelm.traces.growth import retirement
from vinelm.traces.growth.changes import changes_between
from vinelm.traces.growth.plan import BROKEN_STAGE, RequestDigest, RowRules, restoration_of, retirement_of
from vinelm.traces.store.rows import decode_prefix, read_rows
from vinelm.traces.store.run_state import UNFINISHED
from vinelm.traces.store.store import ObservationStore, number_of


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The effect of a changed workflow, dataset or catalog on the rows of a store.

    Attributes:
        changes: what changed, in a few words each.
        before: the number of rows before the change.
        kept: the number of rows that stay, including rows that were scored again.
        restored: the number of retired rows that are used again.
        rescored: the number of rows that stay after being scored again from their stored state, without a call.
        retired: for each reason, the number of rows that are no longer valid.
        repriced: the number of rows whose cost was recomputed at a new price.
        unpriced: the number of rows of a model with a new price that keep their cost, because they recorded no tokens.
        is_reshaped: whether the dataset or the template changed, so that there may be new calls to make.
    """

    changes: tuple[str, ...]
    before: int
    kept: int
    restored: int = 0
    rescored: int = 0
    retired: Mapping[str, int] = field(default_factory=dict)
    repriced: int = 0
    unpriced: int = 0
    is_reshaped: bool = False

    @property
    def has_effect(self) -> bool:
        """Whether any row was retired (not used any more), restored, scored again or repriced, or kept its cost despite a new
        price.
        """
        return bool(self.retired or self.restored or self.rescored or self.repriced or self.unpriced)

    def describe(self) -> str:
        """Return a line that says what changed, how many rows stay, and how many are retired for each reason.

        The line also says whether calls are made again to replace the retired rows.
        """
        lost = sum(self.retired.values())
        parts = [f"{', '.join(self.changes)} since the last run: {self.kept:,} of {self.before:,} rows stay"]
        if self.rescored:
            parts.append(f"{self.rescored:,} of them are scored again from their stored state, without a call")
        if self.restored:
            parts.append(f"{self.restored:,} earlier rows hold again")
        if self.repriced:
            parts.append(f"the new prices are applied to the tokens of {self.repriced:,} rows")
        if self.unpriced:
            parts.append(f"{self.unpriced:,} rows without token counts keep their dollars")
        if lost:
            why = "; ".join(f"{reason}: {count:,}" for reason, count in sorted(self.retired.items(), key=lambda one: -one[1]))
            parts.append(f"{lost:,} no longer hold ({why}) and are bought again where the sampler comes to them")
        else:
            parts.append("nothing is bought again, only what is new" if self.is_reshaped else "nothing is bought again")
        return "; ".join(parts)


def grow(store: ObservationStore, now: StoreIdentity, wanted: Mapping[str, RequestDigest]) -> Growth | None:
    """Change the store's identity to ``now``: retire rows that are no longer valid, restore rows that are valid again.

    Retired rows stay in the store, but are not used. Rows that must be scored again are retired until
    :class:`~vinelm.traces.RowsToScore` restores them. The caller has locked the store (:meth:`ObservationStore.exclusive`).

    Args:
        store: the store.
        now: the identity of the starting run.
        wanted: the digests of all requests of the dataset, by request id.

    Returns:
        The effect; None if nothing has changed.

    Raises:
        StoreError: the store is of another workflow, or none of its rows would stay. Nothing is written in this case.
    """
    with store.database.transaction() as connection:
        growth = _grow(connection, store, now, wanted, assumes_scores=False)
    if growth is not None:
        store.identity = _aged(now, store.identity)
        with store.database.transaction() as connection:
            store.identity_id = number_of(connection, store.identity)
    return growth


def set_prices(store: ObservationStore, now: StoreIdentity) -> int:
    """Recompute the cost of a store's rows at the prices of ``now``, in one transaction. No row is retired or restored.

    Args:
        store: the store.
        now: the store's identity, with only the prices changed.

    Returns:
        The number of rows whose cost changed. Rows without recorded tokens keep their cost.
    """
    with store.database.transaction() as connection:
        known, identities = retirement.request_digests(connection), retirement.identities(connection)
        number = number_of(connection, now)
        rules = RowRules({**identities, number: now}, now, known)
        repriced, _ = retirement.reprice(connection, rules, retirement.current_rows(connection, number, known))
        schema.set_meta(connection, "identity", now.to_json())
    store.identity, store.identity_id = now, number
    return repriced


class _Undo(Exception):
    """Raised inside a transaction to roll it back."""


def preview_growth(
    store: ObservationStore, now: StoreIdentity, wanted: Mapping[str, RequestDigest]
) -> tuple[Growth | None, list[Observation]]:
    """Return the effect that :func:`grow` would have, and the rows that would remain. Writes nothing.

    Rows that would be scored again are returned with their present success.

    Raises:
        StoreError: as in :func:`grow`.
    """
    found: tuple[Growth | None, list[Observation]] = (None, [])
    try:
        with store.database.transaction() as connection:
            growth = _grow(connection, store, now, wanted, assumes_scores=True)
            found = growth, list(read_rows(connection))
            raise _Undo
    except _Undo:
        return found


def retire_broken(store: ObservationStore, cells: Collection[tuple[str, Sequence[str]]]) -> None:
    """Stop using (retire) the rows ``cells`` of a broken stage, so that their calls are executed again.

    These rows are never restored. All rows are retired in one transaction. Their dollars and calls still count.

    Args:
        store: the store; the caller must have locked it.
        cells: request and prefix of each row.
    """
    named = {(request_id, tuple(prefix)) for request_id, prefix in cells}
    rows, meta = schema.observations.c, schema.meta
    with store.database.transaction() as connection:
        order = connection.execute(select(rows.row_id, rows.request_id, rows.prefix).order_by(rows.row_id)).all()
        places = [place for place, row in enumerate(order) if (row.request_id, decode_prefix(row.prefix)) in named]
        text = connection.execute(select(meta.c.value).where(meta.c.key == UNFINISHED)).scalar()
        if text:  # the number of rows that the unfinished run found, without those that leave
            run = json.loads(text)
            run["rows"] -= sum(place < run["rows"] for place in places)
            connection.execute(update(meta).where(meta.c.key == UNFINISHED).values(value=json.dumps(run)))
        retired = [(order[place].row_id, BROKEN_STAGE) for place in places]
        digests = retirement.request_digests(connection)
        retirement.retire(connection, retired, scored_id=store.identity_id, digests=digests)


def _grow(
    connection: Connection,
    store: ObservationStore,
    now: StoreIdentity,
    wanted: Mapping[str, RequestDigest],
    *,
    assumes_scores: bool,
) -> Growth | None:
    before = store.identity
    stranger = before.stranger(now)
    if stranger:
        raise StoreError(f"{store.path}: {stranger}: use another store, or undo the change", code="store-mismatch")
    if before.key == now.key:
        return None
    known = retirement.request_digests(connection)
    changes = changes_between(before, now, known, wanted)
    identities = retirement.identities(connection)
    number = number_of(connection, _aged(now, before))
    rules = RowRules({**identities, number: now}, now, wanted, assumes_scores=assumes_scores)
    current = retirement.current_rows(connection, store.identity_id, known)
    first = retirement.next_retired_id(connection)
    plan = retirement_of(current, rules)
    has_answers = any(row.failure is None for row in current)  # otherwise nothing is lost: the workflow was repaired
    if has_answers and len(plan.retire) - plan.waiting == len(current):
        _refuse_losing_everything(store, plan.retire)
    retirement.retire(connection, plan.retire, scored_id=store.identity_id, digests=known)
    restored = retirement.restore(connection, restoration_of(retirement.retired_rows(connection), rules, plan.kept).restore)
    _mark_rows(connection, rules)
    _set_requests(connection, known, wanted)
    repriced, unpriced = retirement.reprice(connection, rules, retirement.current_rows(connection, number, wanted))
    growth = Growth(
        changes=tuple(changes) or ("settings that decide no row",),
        before=len(current),
        kept=len(current) - len(plan.retire) + plan.waiting,
        restored=restored,
        rescored=plan.waiting,
        retired=_counts(plan.retire, plan.waiting_rows),
        repriced=repriced,
        unpriced=unpriced,
        is_reshaped=before.dataset_digest != now.dataset_digest or _canonical(before.template) != _canonical(now.template),
    )
    if plan.waiting:
        schema.set_meta(connection, RESCORING, str(first))
    schema.set_meta(connection, "identity", _aged(now, before).to_json())
    if growth.has_effect or growth.is_reshaped:
        connection.execute(delete(schema.meta).where(schema.meta.c.key == UNFINISHED))  # its rows are numbered differently now
    return growth


def _mark_rows(connection: Connection, rules: RowRules) -> None:
    """Adapt rows to the new template.

    If the template now branches, record in each row the stage that came next. The flag ``is_continued`` marks rows that follow
    an answer which passed the workflow's check. If the template has the oracle stop rule, clear the flag in every row: under
    that rule, no request ends at a passed check.
    """
    retirement.set_arms(connection, rules.templates, rules.template)
    if rules.rule == "oracle":
        connection.execute(update(schema.observations).values(is_continued=False))


def _refuse_losing_everything(store: ObservationStore, retire: Sequence[tuple[int, str]]) -> None:
    reason, _ = max(_counts(retire, ()).items(), key=lambda one: one[1])
    raise StoreError(
        f"{store.path}: none of its {len(retire):,} rows would stay ({reason}): use another store, or undo the change",
        code="store-mismatch",
    )


def _counts(retire: Sequence[tuple[int, str]], without: Sequence[int] | set[int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row_id, reason in retire:
        if row_id not in without:
            counts[reason] = counts.get(reason, 0) + 1
    return counts


def _aged(now: StoreIdentity, before: StoreIdentity) -> StoreIdentity:
    """Return the identity ``now`` with its time of creation replaced by that of ``before``."""
    return StoreIdentity.from_json(json.dumps({**json.loads(now.to_json()), "created_at": before.created_at}))


def _set_requests(connection: Connection, known: Mapping[str, RequestDigest], wanted: Mapping[str, RequestDigest]) -> None:
    """Delete requests that are no longer in the dataset, and record the current digests of the others.

    ``known`` and ``wanted`` are the stored and the current digests, by request id.
    """
    table = schema.requests
    gone = [{"request": key} for key in known if key not in wanted]
    if gone:
        connection.execute(delete(table).where(table.c.request_id == bindparam("request")), gone)
    changed = [
        {"request": key, "full": wanted[key].full, "inputs": wanted[key].inputs}
        for key, digest in known.items()
        if key in wanted and wanted[key] != digest
    ]
    if changed:
        change = update(table).where(table.c.request_id == bindparam("request"))
        connection.execute(change.values(digest=bindparam("full"), input_digest=bindparam("inputs")), changed)


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
