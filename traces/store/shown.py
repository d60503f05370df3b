"""Signals and answer classes (equal answers) of rows: how they are declared, and how they are updated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, select, update

from vinelm.rows.observation import Cell
from vinelm.signals import Signals
from vinelm.signals.classes import answer_classes
from vinelm.traces.databases import schema
from vinelm.traces.databases.schema import SIGNALS
from vinelm.traces.store.rows import encode_prefix, read_rows
from vinelm.traces.store.store import ObservationStore


@dataclass(frozen=True, kw_only=True)
class SignalRecord:
    """What the workflow declared when a store's signals and answer classes were computed, with counts of problems.

    An answer class is a set of equal answers to a request.

    Attributes:
        signal: digest of the signal's code, or ``status``; None without a signal.
        edges: the limits between the bins of a numeric signal.
        agree: digest of the code that compares answers; None if their JSON is compared.
        answer: the keys of the state that make an answer.
        rows: the number of rows from which the classes were computed; if it changes, they must be computed again.
        compared: the number of pairs of different answers that were compared.
        intransitive: the number of these pairs that contradict the classes because ``agree`` is not transitive.
        unknown: the number of requests whose classes cannot be computed, since an answer is stored only as a digest.
        without_state: the number of rows whose signal or answer cannot be recomputed, since the state after them is not stored.
        is_behind: whether retired (no longer used) rows have signals and answers computed from an earlier declaration.
    """

    signal: str | None = None
    edges: tuple[float, ...] = ()
    agree: str | None = None
    answer: tuple[str, ...] = ()
    rows: int = 0
    compared: int = 0
    intransitive: int = 0
    unknown: int = 0
    without_state: int = 0
    is_behind: bool = False

    def shows_as(self, other: SignalRecord) -> bool:
        """Return whether both records have the same declarations of signals and answers.

        How answers are compared (``agree``) may differ.
        """
        return (self.signal, self.edges, self.answer) == (other.signal, other.edges, other.answer)

    def to_json(self) -> str:
        """Return the record as JSON text, which :meth:`from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> SignalRecord:
        """Return the record that :meth:`to_json` wrote as ``text``."""
        return cls.of_plain(json.loads(text))

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> SignalRecord:
        """Return the record with the fields in ``plain``, whose values have JSON types."""
        return cls(**{**plain, "edges": tuple(plain["edges"]), "answer": tuple(plain["answer"])})


class Shown(NamedTuple):
    """What is read from the state after a row: its signal, its answer as JSON text, and a digest of that text.

    Each is None if it is missing.
    """

    signal: str | None = None
    answer: str | None = None
    answer_digest: str | None = None


class ShownRows:
    """Reads and changes the signals, answers and answer classes (sets of equal answers) of rows.

    Makes no call; every write is durable.

    Args:
        store: the store; to change something, the caller must have locked it.
    """

    def __init__(self, store: ObservationStore) -> None:
        self._store, self._database = store, store.database

    @property
    def record(self) -> SignalRecord | None:
        """What the workflow declared when the rows' signals and classes were computed; None if nothing was declared."""
        with self._database.transaction() as connection:
            return record_of(connection)

    def set_shown(self, shown: Mapping[Cell, Shown], record: SignalRecord) -> None:
        """Change rows' signals and answers, and delete their classes; call :meth:`set_classes` afterwards.

        Args:
            shown: signals and answers by (request, prefix); other rows stay unchanged.
            record: the declarations from which they were computed.
        """
        values = [
            {"request": request_id, "cell": encode_prefix(prefix), **one._asdict()}
            for (request_id, prefix), one in shown.items()
        ]
        with self._database.transaction() as connection:
            if values:
                connection.execute(_SET_SHOWN, values)
            self._set_record(connection, record)

    def set_classes(self, classes: Mapping[Cell, int | None], record: SignalRecord) -> int:
        """Set the answer classes of rows, and return the number of changed rows.

        Args:
            classes: the class by (request, prefix), None for no class; other rows stay unchanged.
            record: the declarations from which the classes were computed.
        """
        with self._database.transaction() as connection:
            values = [
                {"request": row.request_id, "cell": encode_prefix(row.prefix), "number": classes[row.request_id, row.prefix]}
                for row in read_rows(connection)
                if classes.get((row.request_id, row.prefix), row.answer_class) != row.answer_class
            ]
            if values:
                connection.execute(_SET_CLASS, values)
            self._set_record(connection, record)
            return len(values)

    def forget(self, *, with_answers: bool = True) -> None:
        """Delete all rows' signals and classes, and if ``with_answers`` their answers: the workflow no longer declares them."""
        nothing = dict.fromkeys((*Shown._fields, "answer_class") if with_answers else ("signal", "answer_class"))
        with self._database.transaction() as connection:
            for table in (schema.observations, schema.retired):
                connection.execute(update(table).values(nothing))
            connection.execute(delete(schema.meta).where(schema.meta.c.key == SIGNALS))

    def _set_record(self, connection: Connection, record: SignalRecord) -> None:
        schema.set_meta(connection, SIGNALS, record.to_json())

    def has_retired(self) -> bool:
        """Return whether the store has retired rows: rows that stay in the store but are not used."""
        with self._database.transaction() as connection:
            return connection.execute(select(schema.retired.c.retired_id).limit(1)).first() is not None


def record_of(connection: Connection) -> SignalRecord | None:
    """Return what the workflow declared when the store's signals and classes were computed; None if nothing was declared."""
    text = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == SIGNALS)).scalar()
    return None if text is None else SignalRecord.from_json(text)


_ROWS = schema.observations
_CELL = (_ROWS.c.request_id == bindparam("request"), _ROWS.c.prefix == bindparam("cell"))
_SET_SHOWN = update(_ROWS).where(*_CELL).values(**{name: bindparam(name) for name in Shown._fields}, answer_class=None)
_SET_CLASS = update(_ROWS).where(*_CELL).values(answer_class=bindparam("number"))


def common_record(stores: Sequence[ObservationStore]) -> SignalRecord | None:
    """Return what all stores declare about signals and answers, as one record; None if they differ or declare nothing.

    The record's ``unknown`` and ``without_state`` are sums over the stores. Its ``rows`` is -1, so that answer classes are
    computed again.
    """
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
    """Set the signals and answer classes of the rows of ``merged``, as far as possible without the workflow.

    If the stores have different declarations, no signals and classes are kept: the next profile recomputes them from the stored
    states. If answers are compared as JSON, the classes of all requests are computed here. Otherwise the classes of requests
    that several stores have are deleted, and the next profile computes them.
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
