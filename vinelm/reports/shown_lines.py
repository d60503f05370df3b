"""What the rows of a store showed, in lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from vinelm.traces.store.shown import SignalRecord


def shown_lines(record: SignalRecord, rows: int, answers: int | None = None) -> Iterator[str]:
    """Yield what is worth saying about the answers of a store and their classes.

    Args:
        record: what they were made with.
        rows: rows of the store.
        answers: how many of them have an answer; None to say nothing about it.
    """
    if record.answer and answers is not None:
        yield f"Answers ({', '.join(record.answer)}) of {answers:,} rows."
    if record.answer and record.rows != rows:
        yield "Their classes are not up to date: the next `vinelm profile` computes them, without a call."
    elif record.intransitive:
        pairs = f"{record.intransitive:,} of {record.compared:,} pairs of answers"
        yield f"agree is not transitive: {pairs} contradict the classes."
    if record.unknown:
        yield (
            f"The classes of {record.unknown:,} requests cannot be computed: of some of their answers only a digest is kept."
        )
    if record.without_state:
        yield f"{record.without_state:,} rows show less than is declared, since the state after them is not kept."
