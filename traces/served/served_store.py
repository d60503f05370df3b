"""The store for results of served requests, to which several processes may write at the same time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import Column, MetaData, String, Table, bindparam, select, update
from sqlalchemy.dialects.sqlite import insert

from vinelm.errors import StoreError
from vinelm.rows.observation import Observation
from vinelm.traces.databases import schema
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.store.rows import decode_prefix, insert_rows
from vinelm.traces.store.store import ObservationStore, number_of

OPENING_S = 0.5
"""How long processes that create one store at the same moment wait for each other, in seconds."""

_ADD_REQUEST = insert(schema.requests).on_conflict_do_nothing()
_CELLS = select(schema.observations.c.request_id, schema.observations.c.prefix)
_ROWS_OF = select(schema.observations.c.row_id).where(
    schema.observations.c.request_id == bindparam("request"), schema.observations.c.failure.is_(None)
)
_LAST_ROW = _ROWS_OF.order_by(schema.observations.c.depth.desc(), schema.observations.c.row_id.desc()).limit(1)
_SET_SUCCESS = (
    update(schema.observations).where(schema.observations.c.row_id == bindparam("row")).values(success=bindparam("right"))
)

metadata = MetaData()
feedback = Table(
    "feedback",
    metadata,
    Column("request_id", String, primary_key=True, comment="the request"),
    Column("caller", String, nullable=False, comment="who said first whether its answer is right; empty: the application"),
    comment="Who has said which answers of served requests are right. Made with the first word.",
)
_SAY_FIRST = insert(feedback).on_conflict_do_nothing()
_FIRST = select(feedback.c.caller).where(feedback.c.request_id == bindparam("request"))


class ServedStore:
    """Writes results of served requests to an :class:`~vinelm.traces.ObservationStore`. Each write is a transaction.

    Args:
        path: the file; created if it does not exist. Its folder must exist.
        identity: the workflow, template and catalog that are served.

    Raises:
        StoreError: the file is not a store, or is a store of another workflow.
    """

    def __init__(self, path: Path, identity: StoreIdentity) -> None:
        give_up = time.monotonic() + OPENING_S
        while True:
            try:
                self.store = ObservationStore.open_or_create(path, identity)
                break
            except StoreError as error:
                if error.code == "store-mismatch" or time.monotonic() > give_up or not path.parent.is_dir():
                    raise
                time.sleep(0.05)  # another process is creating it
        with self.store.database.transaction() as connection:
            self._identity_id = number_of(connection, identity)

    def add(self, rows: Sequence[Observation]) -> int:
        """Add the rows whose request and prefix have no row yet, and return the number of added rows."""
        if not rows:
            return 0
        with self.store.database.transaction() as connection:
            requests = sorted({row.request_id for row in rows})
            connection.execute(_ADD_REQUEST, [{"request_id": name, "digest": "served"} for name in requests])
            found = connection.execute(_CELLS.where(schema.observations.c.request_id.in_(requests)))
            seen = {(row.request_id, decode_prefix(row.prefix)) for row in found}
            new: list[Observation] = []
            for row in rows:
                if (row.request_id, row.prefix) not in seen:
                    seen.add((row.request_id, row.prefix))
                    new.append(row)
            if new:
                insert_rows(connection, new, self._identity_id)
            return len(new)

    def set_success(self, request_id: str, success: bool | float, caller: str = "") -> bool:
        """Record whether the last answer of a request is right.

        Only the caller who gives the first verdict on a request counts. A later verdict of this caller replaces the first one;
        verdicts of other callers change nothing.

        Args:
            request_id: the request.
            success: True (right), False (wrong) or a score in [0, 1].
            caller: who gives the verdict; empty for the application itself.

        Returns:
            False if the request has no row, or only failed rows; otherwise True, even if the verdict changes nothing.
        """
        with self.store.database.transaction() as connection:
            row_id = connection.execute(_LAST_ROW, {"request": request_id}).scalar()
            if row_id is None:
                return False
            metadata.create_all(connection)
            connection.execute(_SAY_FIRST, {"request_id": request_id, "caller": caller})
            if connection.execute(_FIRST, {"request": request_id}).scalar() == caller:
                connection.execute(_SET_SUCCESS, {"row": row_id, "right": success})
            return True

    def close(self) -> None:
        """Close the file. Idempotent."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
