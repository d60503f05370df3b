"""Bring together what the rows of several stores showed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from vinelm.signals import Signals
from vinelm.signals.classes import answer_classes
from vinelm.traces.shown.rows import ShownRows, SignalRecord
from vinelm.traces.store.store import ObservationStore


def common_record(stores: Sequence[ObservationStore]) -> SignalRecord | None:
    """Return the declaration that all stores share; None if none has one, or they differ."""
    records = [ShownRows(store).record for store in stores]
    first = records[0]
    if first is None or any(one is None or not one.shows_as(first) or one.agree != first.agree for one in records):
        return None
    known = [one for one in records if one is not None]
    return replace(
        first, rows=-1, unknown=sum(one.unknown for one in known), without_state=sum(one.without_state for one in known),
        is_behind=any(one.is_behind for one in known),
    )  # fmt: skip


def unite_shown(stores: Sequence[ObservationStore], merged: ObservationStore) -> None:
    """Set what the rows of the new store showed, as far as that is known without the workflow.

    Where the stores differ in what they declare nothing is kept: the next profile makes it anew from the states. Classes of
    requests that several stores have rows of are computed here if answers are compared by their JSON, else by the next profile.
    """
    shown, record = ShownRows(merged), common_record(stores)
    if record is None:
        shown.forget()
        return
    rows = merged.observations()
    if record.agree is None and record.answer:
        found = answer_classes(rows, Signals(answer=record.answer))
        done = replace(record, rows=len(rows), compared=found.compared, intransitive=found.intransitive)
        shown.set_classes(found.of, done)
        return
    times = Counter(request for store in stores for request in {row.request_id for row in store.observations()})
    shown.set_classes({(row.request_id, row.prefix): None for row in rows if times[row.request_id] > 1}, record)


__all__ = ["common_record", "unite_shown"]
