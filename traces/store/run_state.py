"""What a run keeps in its store besides rows: raised reservations, checkpoints that nobody needs any more, where it began."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select, update
from sqlalchemy.dialects.sqlite import insert

from vinelm.traces.store import schema
from vinelm.traces.store.schema import decode_prefix, encode_prefix
from vinelm.traces.store.store import ObservationStore

UNFINISHED = "unfinished_run"
"""Key in ``meta`` of the run that has not ended in good order: its settings, and ``rows``, how many rows it found."""
LAST = "last_run"
"""Key in ``meta`` of the settings of the run that was last begun, whether it has ended or not."""

_RAISE = update(schema.ledger).where(schema.ledger.c.entry_id == bindparam("entry")).values(reserved_usd=bindparam("upper"))
_CELL = (schema.checkpoints.c.request_id == bindparam("request")) & (schema.checkpoints.c.prefix == bindparam("cell"))
_DIGEST = select(schema.checkpoints.c.digest).where(_CELL)
_FORGET = delete(schema.checkpoints).where(_CELL)
_IS_USED = select(schema.checkpoints.c.digest).where(schema.checkpoints.c.digest == bindparam("digest")).limit(1)
_FORGET_BLOB = delete(schema.blobs).where(schema.blobs.c.digest == bindparam("digest"))


class RunRecords:
    """The running side of a store. Only for the run that holds it (:meth:`ObservationStore.exclusive`)."""

    def __init__(self, store: ObservationStore) -> None:
        self.store = store
        self._database = store._database

    def together(self) -> AbstractContextManager[Connection]:
        """Everything that this thread writes inside the block becomes durable at once, or not at all."""
        return self._database.transaction()

    # -- money -------------------------------------------------------------------------------------------------

    def raise_reservation(self, entry: int, upper_usd: float) -> None:
        """Set more aside for a unit that is under way."""
        with self._database.transaction() as connection:
            connection.execute(_RAISE, {"entry": entry, "upper": upper_usd})

    def times_paid(self) -> Counter[tuple[str, tuple[str, ...]]]:
        """How many settled entries each (request, prefix) has; those of runs that died are not counted."""
        table = schema.ledger
        is_paid = table.c.settled_usd.is_not(None) & table.c.is_abandoned.is_(False)
        query = select(table.c.request_id, table.c.prefix, func.count()).where(is_paid).group_by("request_id", "prefix")
        with self._database.transaction() as connection:
            return Counter({(row[0], decode_prefix(row[1])): int(row[2]) for row in connection.execute(query)})

    # -- checkpoints -------------------------------------------------------------------------------------------

    def drop_checkpoint(self, request_id: str, prefix: Sequence[str]) -> None:
        """Forget the state after that prefix, and its content if no other one is equal. Harmless if there is none."""
        cell = {"request": request_id, "cell": encode_prefix(prefix)}
        with self._database.transaction() as connection:
            digest = connection.execute(_DIGEST, cell).scalar()
            if digest is None:
                return
            connection.execute(_FORGET, cell)
            if connection.execute(_IS_USED, {"digest": digest}).first() is None:
                connection.execute(_FORGET_BLOB, {"digest": digest})

    def checkpoint_cells(self) -> list[tuple[str, tuple[str, ...]]]:
        """The (request, prefix) pairs whose state is kept."""
        with self._database.transaction() as connection:
            found = connection.execute(select(schema.checkpoints.c.request_id, schema.checkpoints.c.prefix))
            return [(row[0], decode_prefix(row[1])) for row in found]

    # -- where a run began -------------------------------------------------------------------------------------

    def begin(self, settings: Mapping[str, Any]) -> int:
        """Note that a run with these settings (plain JSON) is under way; how many of the store's rows are older than it.

        An unfinished run of the same settings is taken up: its own rows are not older than it.
        """
        with self._database.transaction() as connection:
            noted = _noted(connection, UNFINISHED)
            _note(connection, LAST, dict(settings))
            if noted is not None and noted["settings"] == json.loads(json.dumps(dict(settings))):
                return int(noted["rows"])
            count = select(func.count()).select_from(schema.observations)
            rows = int(connection.execute(count).scalar_one())
            _note(connection, UNFINISHED, {"settings": dict(settings), "rows": rows})
            return rows

    def last_settings(self) -> Mapping[str, Any] | None:
        """Those of the run that was last begun; None if there was none, or by a version that did not note it."""
        with self._database.transaction() as connection:
            last, unfinished = _noted(connection, LAST), _noted(connection, UNFINISHED)
            return last if last is not None or unfinished is None else dict(unfinished["settings"])

    def end(self) -> None:
        """The run has left no gap: every row it bought follows from the ones before."""
        with self._database.transaction() as connection:
            connection.execute(delete(schema.meta).where(schema.meta.c.key == UNFINISHED))


def _noted(connection: Connection, key: str) -> dict[str, Any] | None:
    text = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == key)).scalar()
    return json.loads(text) if text else None


def _note(connection: Connection, key: str, plain: Mapping[str, Any]) -> None:
    value = json.dumps(dict(plain))
    statement = insert(schema.meta).values(key=key, value=value)
    connection.execute(statement.on_conflict_do_update(index_elements=["key"], set_={"value": value}))
