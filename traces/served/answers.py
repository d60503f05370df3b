"""Stores the answers of a dataset run: answer, models, cost and duration of each distinct request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Column, Float, Integer, MetaData, Row, Select, String, Table, func, insert, inspect, select

from vinelm.errors import FailureKind
from vinelm.traces.databases import schema
from vinelm.traces.store.rows import decode_prefix, encode_prefix
from vinelm.traces.store.store import ObservationStore

_OUTPUTS = "batch_outputs"
MOST_OUTPUTS = 100
"""The maximum number of output files that are remembered as written from a store, so that the next output may replace them."""
READ_AT_ONCE = 256
"""The maximum number of answers that are read at a time, because all answers of a dataset could fill the memory."""

metadata = MetaData()
answers = Table(
    "answers",
    metadata,
    Column("key", String, primary_key=True, comment="digest of what the graph was given: equal requests have one answer"),
    Column("entry_id", Integer, nullable=False, comment="its entry in the ledger"),
    Column("prefix", String, nullable=False, comment="the models that ran, in order, JSON list"),
    Column("cost_usd", Float, nullable=False, comment="dollars of all its calls"),
    Column("latency_s", Float, nullable=False, comment="seconds from its start to its answer, waiting included"),
    Column("answer", String, comment="what the graph returned, JSON; NULL for a failed request"),
    Column("failure", String, comment="failure kind; NULL: the graph returned"),
    Column("detail", String, comment="one line about the failure, without prompt or key"),
    comment="Requests that `vinelm batch` has answered. Made with the first of them.",
)
equal_metadata = MetaData()
equal_calls = Table(
    "equal_calls",
    equal_metadata,
    Column("key", String, primary_key=True, comment="of the answer"),
    Column("equal_calls", Integer, nullable=False, comment="its calls that an equal one has answered, for $0"),
    Column("saved_usd", Float, nullable=False, comment="dollars that they would have cost"),
    comment="What answers of a batch did not pay, beside their entries in the ledger. Made with the first of them.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a request of a dataset, and to all requests equal to it.

    Attributes:
        key: The digest of the graph's inputs.
        prefix: The models that ran, in order.
        cost_usd: The cost of all calls in dollars, including failed calls.
        latency_s: The duration in seconds, in simulated time for simulated and recorded backends.
        answer: The graph's result, as JSON; None for a failed request.
        failure: Kind of the failure; None if the graph returned a result.
        detail: The failure's message.
        equal_calls: The number of the request's calls that were answered from an equal call.
        saved_usd: The dollars that these calls would have cost.
    """

    key: str
    prefix: tuple[str, ...]
    cost_usd: float
    latency_s: float
    answer: str | None = None
    failure: FailureKind | None = None
    detail: str | None = None
    equal_calls: int = 0
    saved_usd: float = 0.0

    @property
    def list_usd(self) -> float:
        """The dollars that the request would have cost if every call had been made."""
        return self.cost_usd + self.saved_usd


_KEPT = tuple(field.name for field in fields(Answer) if field.name in answers.c)
_ADD = insert(answers)
_BRIEF = [answers.c[name] for name in _KEPT if name != "answer"]


class Answers:
    """Reads and adds the answers of a store. Every write is durable.

    Args:
        store: the store; to add something, the caller must have locked it.
    """

    def __init__(self, store: ObservationStore) -> None:
        self._database = store.database
        with self._database.transaction() as connection:
            self._is_there, self._has_equal = map(inspect(connection).has_table, (answers.name, equal_calls.name))

    def add(self, entry_id: int, answer: Answer) -> None:
        """Add an answer in the caller's transaction; ``entry_id`` is the number of the ledger entry with its cost."""
        values = {name: getattr(answer, name) for name in _KEPT}
        values |= {"prefix": encode_prefix(answer.prefix), "entry_id": entry_id}
        with self._database.transaction() as connection:
            if not self._is_there:
                metadata.create_all(connection)
                self._is_there = True
            connection.execute(_ADD, values)
            if answer.equal_calls:
                if not self._has_equal:
                    equal_metadata.create_all(connection)
                    self._has_equal = True
                row = {name: getattr(answer, name) for name in ("key", "equal_calls", "saved_usd")}
                connection.execute(insert(equal_calls), row)

    def equal(self) -> tuple[int, float]:
        """Return (the number of model calls that were answered from equal calls, the dollars that they would have cost)."""
        if not self._has_equal:
            return 0, 0.0
        query = select(func.sum(equal_calls.c.equal_calls), func.sum(equal_calls.c.saved_usd))
        with self._database.transaction() as connection:
            calls, saved_usd = connection.execute(query).one()
            return int(calls or 0), float(saved_usd or 0.0)

    def outputs(self) -> list[str]:
        """Return the digests of the newest :data:`MOST_OUTPUTS` output files written from these answers, oldest first."""
        with self._database.transaction() as connection:
            text = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == _OUTPUTS)).scalar()
            return json.loads(text) if text else []

    def note_output(self, digest: str) -> None:
        """Record the digest of a new output file. Called before the file replaces an older output file."""
        known = [one for one in self.outputs() if one != digest]
        with self._database.transaction() as connection:
            schema.set_meta(connection, _OUTPUTS, json.dumps([*known, digest][-MOST_OUTPUTS:]))

    def brief(self) -> Iterator[Answer]:
        """Yield all answers without the graph's results, that is, with ``answer`` None."""
        if not self._is_there:
            return
        with self._database.transaction() as connection:
            for row in connection.execute(self._with_equal(select(*_BRIEF).order_by(answers.c.entry_id))):
                yield _answer(row)

    def of(self, keys: Iterable[str]) -> dict[str, Answer]:
        """Return the answers by the keys of their requests; requests without an answer are left out.

        ``keys`` are at most :data:`READ_AT_ONCE` digests of inputs (:attr:`Answer.key`).
        """
        if not self._is_there:
            return {}
        query = select(*_BRIEF, answers.c.answer).where(answers.c.key.in_(list(keys)))
        with self._database.transaction() as connection:
            return {row.key: _answer(row) for row in connection.execute(self._with_equal(query))}

    def _with_equal(self, query: Select[Any]) -> Select[Any]:
        if not self._has_equal:
            return query
        columns = [func.coalesce(equal_calls.c[name], 0).label(name) for name in ("equal_calls", "saved_usd")]
        return query.add_columns(*columns).outerjoin(equal_calls, equal_calls.c.key == answers.c.key)


def _answer(row: Row[Any]) -> Answer:
    return Answer(**{**row._mapping, "prefix": decode_prefix(row.prefix)})
