"""Answers of a batch: what each different request of a data set was answered, by whom, for how much, and how long it took."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from sqlalchemy import Column, Float, Integer, MetaData, String, Table, insert, inspect, select

from vinelm.errors import FailureKind
from vinelm.traces.databases import schema
from vinelm.traces.store.rows import decode_prefix, encode_prefix
from vinelm.traces.store.store import ObservationStore

_OUTPUTS = "batch_outputs"
MOST_OUTPUTS = 100
"""Files of lines that are known as the batch's own, to be replaced by the next one."""
READ_AT_ONCE = 256
"""Answers that are read at a time: a long answer times all of them would fill the memory."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a request of a batch, and to all that are equal to it.

    Attributes:
        key: Digest of what the graph was given.
        prefix: The models that ran, in order.
        cost_usd: Dollars of all calls, failed ones included.
        latency_s: Seconds by the policy's clock, which is virtual for simulated and recorded backends.
        answer: What the graph returned, as JSON; None for a failed request.
        failure: Kind of the failure; None if the graph returned.
        detail: The failure's message.
    """

    key: str
    prefix: tuple[str, ...]
    cost_usd: float
    latency_s: float
    answer: str | None = None
    failure: FailureKind | None = None
    detail: str | None = None


_KEPT = tuple(field.name for field in fields(Answer))
_ADD = insert(answers)
_BRIEF = [answers.c[name] for name in _KEPT if name != "answer"]


class Answers:
    """Reads and adds the answers of a store. Every write is durable.

    Args:
        store: held by the caller where something is added.
    """

    def __init__(self, store: ObservationStore) -> None:
        self._database = store.database
        with self._database.transaction() as connection:
            self._is_there = inspect(connection).has_table(answers.name)

    def add(self, entry_id: int, answer: Answer) -> None:
        """Add an answer that was paid under an entry of the ledger. Joins the caller's transaction."""
        values = {name: getattr(answer, name) for name in _KEPT}
        values |= {"prefix": encode_prefix(answer.prefix), "entry_id": entry_id}
        with self._database.transaction() as connection:
            if not self._is_there:
                metadata.create_all(connection)
                self._is_there = True
            connection.execute(_ADD, values)

    def outputs(self) -> list[str]:
        """Return the digests of the files of lines that were written from these answers, the latest one last."""
        with self._database.transaction() as connection:
            text = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == _OUTPUTS)).scalar()
            return json.loads(text) if text else []

    def note_output(self, digest: str) -> None:
        """Note the digest of a file of lines, before it replaces an earlier one."""
        known = [one for one in self.outputs() if one != digest]
        with self._database.transaction() as connection:
            schema.set_meta(connection, _OUTPUTS, json.dumps([*known, digest][-MOST_OUTPUTS:]))

    def brief(self) -> Iterator[Answer]:
        """Yield all answers without what the graph returned."""
        if not self._is_there:
            return
        with self._database.transaction() as connection:
            for row in connection.execute(select(*_BRIEF).order_by(answers.c.entry_id)):
                yield Answer(**{**row._mapping, "prefix": decode_prefix(row.prefix)})

    def of(self, keys: Iterable[str]) -> dict[str, Answer]:
        """Return the answers to these requests, at most :data:`READ_AT_ONCE` of them; those that have none are left out."""
        if not self._is_there:
            return {}
        query = select(*_BRIEF, answers.c.answer).where(answers.c.key.in_(list(keys)))
        with self._database.transaction() as connection:
            found = connection.execute(query)
            return {row.key: Answer(**{**row._mapping, "prefix": decode_prefix(row.prefix)}) for row in found}
