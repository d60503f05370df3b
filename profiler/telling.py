"""Tells whoever watches how a run stands, once per row."""

from __future__ import annotations

from dataclasses import replace

from vinelm.profiler.results import Progress
from vinelm.profiler.scheduling.run_state import Books


class Telling:
    """Silent where nobody asked for it."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._tell = books.terms.on_progress

    def rows(self) -> None:
        """The rows since the last time, one by one."""
        told, self._books.new_rows = self._books.new_rows, 0
        for left in range(told - 1, -1, -1):
            self.now(left)

    def now(self, left: int = 0) -> None:
        """How it stands, but for the last ``left`` rows."""
        if self._tell is not None:
            self._tell(replace(self._progress(), executed=self._books.executed - left))

    def _progress(self) -> Progress:
        books, coverage = self._books, self._books.account.coverage
        return Progress(
            executed=books.executed,
            failures=dict(books.failures),
            coverage=coverage.fraction,
            target=books.terms.target,
            spent_usd=coverage.spent_usd,
            budget_usd=books.ledger.budget_usd,
            committed_usd=books.ledger.committed_usd,
            calls=books.calls,
            in_flight=len(books.running),
            interval=books.account.interval(),
            is_draining=books.stopped_by is not None and bool(books.running),
        )
