"""Retire the rows of a stage that was broken: they are executed again, and never used again."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from sqlalchemy import select, update

from vinelm.traces.databases import schema
from vinelm.traces.growth.plan import BROKEN_STAGE
from vinelm.traces.growth.retirement import request_digests, retire
from vinelm.traces.store.rows import decode_prefix
from vinelm.traces.store.run_state import UNFINISHED
from vinelm.traces.store.store import ObservationStore


def retire_broken(store: ObservationStore, cells: Collection[tuple[str, Sequence[str]]]) -> None:
    """Move the rows of these cells to the retired ones, in one transaction. Their dollars and calls keep counting.

    Args:
        store: held by the caller.
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
        retire(connection, retired, scored_id=store.identity_id, digests=request_digests(connection))
