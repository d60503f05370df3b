"""Writes a copy of a store whose rows cost what new prices imply. Makes no calls; the ledger keeps what was paid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select

from vinelm.catalog import Catalog
from vinelm.catalog.prices import is_same_amount
from vinelm.errors import ConfigError, StoreError
from vinelm.traces.databases import schema
from vinelm.traces.databases.address import file_of
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.databases.lock import run_lock
from vinelm.traces.growth.grow import set_prices
from vinelm.traces.store.atomic import copied_store
from vinelm.traces.store.merge import rows_digest
from vinelm.traces.store.rows import cell_name, decode_prefix
from vinelm.traces.store.store import ObservationStore
from vinelm.traces.store.summary import contents_of


@dataclass(frozen=True, kw_only=True)
class RepricedModel:
    """The number and cost of a model's rows, before and after repricing.

    Attributes:
        name: the model's name in the catalog.
        has_new_price: whether the new price differs from the store's price.
        rows: the number of the model's rows.
        before_usd: the cost of these rows in dollars at the old price, without tools.
        after_usd: the cost of these rows in dollars at the new price, without tools.
    """

    name: str
    has_new_price: bool
    rows: int
    before_usd: float
    after_usd: float


@dataclass(frozen=True, kw_only=True)
class Repriced:
    """Result of :func:`reprice_store`.

    Attributes:
        rows: the number of rows of the new store.
        repriced: the number of rows whose cost changed.
        paid_usd: the dollars paid according to the ledger, which are equal in both stores.
        models: the models, in the order of the catalog.
    """

    rows: int
    repriced: int
    paid_usd: float
    models: tuple[RepricedModel, ...]


def reprice_store(source: Path, path: Path, prices: Catalog) -> Repriced:
    """Create the store at ``path`` from ``source``, with the cost of all rows at new prices. All or nothing.

    The cost of a row is computed from its recorded tokens. The charged dollars stay recorded too. ``source`` and the ledger do
    not change. A failed call that was not charged costs $0 at the new prices, too.

    Args:
        source: an existing store; it is only read.
        path: the store to create.
        prices: a catalog with an entry for each model of the store, of which only the prices are used. Other models are
            ignored.

    Raises:
        ConfigError: a model of the store has no price in ``prices``, or no price differs from the store's.
        StoreError: a row of a model with a new price recorded no tokens; ``source`` is locked by a run, or has rows that must
            still be scored again; or ``path`` exists.
    """
    with ObservationStore.open(source) as store, run_lock(file_of(store.path, "reprice")):
        if contents_of(store).waiting:
            raise StoreError(f"{source}: some of its rows wait to be scored again: profile with it first")
        now = _identity(store, prices)
        _require_tokens(store, now)
        before = _dollars(store)
        with copied_store(store, path) as copy:
            repriced = set_prices(copy, now)
            copy.record_source("reprice", store.path.name, rows_digest(store.observations()), repriced)
            after, contents = _dollars(copy), contents_of(copy)
    changed = _changed(store.identity.models(), now.models())
    models = tuple(
        RepricedModel(
            name=name, has_new_price=name in changed, rows=rows, before_usd=usd, after_usd=after.get(name, (0, 0.0))[1]
        )
        for name in now.models()
        for rows, usd in [before.get(name, (0, 0.0))]
    )
    rows = sum(count for count, _ in after.values())
    return Repriced(rows=rows, repriced=repriced, paid_usd=contents.committed_usd, models=models)


def _identity(store: ObservationStore, prices: Catalog) -> StoreIdentity:
    """Return the store's identity with the new prices; nothing else changes."""
    mine = store.identity.settings()
    lacking = [name for name in mine if name not in prices]
    if lacking:
        raise ConfigError(
            f"no price for the model {lacking[0]!r}, which {store.path} has rows of or may have: add its entry to the catalog"
            + (f" ({len(lacking)} models lack one)" if len(lacking) > 1 else "")
        )
    models = [mine[name].model_copy(update={"price": prices[name].price, "price_id": prices[name].price_id}) for name in mine]
    catalog = Catalog(models, mine.backends)
    if not _changed(mine, catalog):
        raise ConfigError(f"the prices of all {len(mine)} models are those of {store.path}: there is nothing to reprice")
    plain = {**store.identity.to_dict(), "catalog": catalog.to_dict()}
    return StoreIdentity.from_json(json.dumps(plain, default=str))


def _changed(before: Catalog, now: Catalog) -> frozenset[str]:
    """Return the names of the models whose price differs, so that the cost of their rows may change."""
    return frozenset(name for name in before if not is_same_amount(before[name].price, now[name].price))


def _require_tokens(store: ObservationStore, now: StoreIdentity) -> None:
    table = schema.observations.c
    query = (
        select(table.request_id, table.prefix, table.model)
        .where(table.model.in_(_changed(store.identity.models(), now.models())), table.calls > 0)
        .where(table.tokens_in.is_(None) | table.tokens_out.is_(None))
        .where(table.failure.is_(None) | (table.cost_usd > 0))
        .order_by(table.row_id)
    )
    with store.database.transaction() as connection:
        found = connection.execute(query).all()
    if found:
        first = found[0]
        raise StoreError(
            f"{store.path}: {len(found):,} rows recorded no tokens, so a new price cannot be applied "
            f"(first: {cell_name(first.request_id, decode_prefix(first.prefix))}, model {first.model!r}): leave the prices of "
            "their models as they are",
            code="rows-without-tokens",
        )


def _dollars(store: ObservationStore) -> Mapping[str, tuple[int, float]]:
    """Return (number of rows, their cost in dollars without tools) for each model, by name."""
    table = schema.observations.c
    with store.database.transaction() as connection:
        query = select(table.model, func.count(), func.sum(table.cost_usd)).group_by(table.model)
        return {row[0]: (int(row[1]), float(row[2])) for row in connection.execute(query)}
