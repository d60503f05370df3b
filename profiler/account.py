"""What a run knows: the rows of the store, which of them are counted, and when a cap says stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from vinelm.catalog.catalog import Catalog
from vinelm.observation import Observation
from vinelm.profiler.budget.ledger import PriceBound
from vinelm.profiler.coverage import Coverage
from vinelm.profiler.execution.job import Cell
from vinelm.profiler.scheduling.walks import Bounds
from vinelm.template import Template
from vinelm.workflow import Request

_REFIT = 1.05  # the interval is computed anew each time the rows have grown by this factor


class Account:
    """``known`` has every row; ``coverage`` and ``bounds`` what was counted in canonical order.

    The store's first ``older`` rows are counted at once: they were there when the run began. The others are its own, bought by
    an earlier call that was killed; each is counted when its turn comes, as if it were bought then.
    """

    def __init__(
        self, rows: Sequence[Observation], older: int, requests: Iterable[Request], template: Template, catalog: Catalog
    ) -> None:
        self.template = template
        self.requests: Mapping[str, Request] = {request.id: request for request in requests}
        self.known: dict[Cell, Observation] = {}
        self.coverage = Coverage(template, len(self.requests))
        self._choices = [len(stage.models or ()) for stage in template.invocations]
        self._children: Counter[Cell] = Counter()
        self.counted: set[Cell] = set()
        self._interval: tuple[float, float] = (0.0, 1.0)
        self._interval_at = 0
        bound = PriceBound(catalog)
        for row in rows:
            self.keep(row)
        for row in sorted(rows[:older], key=lambda row: row.depth):
            if row.request_id in self.requests:
                self.coverage.add(row)
                self.counted.add((row.request_id, row.prefix))
        for row in rows[:older]:
            if row.request_id in self.requests:
                bound.add(row)
        self.bounds = Bounds(bound)

    def keep(self, row: Observation) -> Cell | None:
        """A row is in the store. The cell whose checkpoint nobody needs any more, if that is so now."""
        self.known[row.request_id, row.prefix] = row
        parent = (row.request_id, row.prefix[:-1])
        self._children[parent] += 1
        is_last = row.depth > 1 and self._children[parent] == self._choices[row.depth - 1]
        return parent if is_last else None

    def used_up(self, cell: Cell) -> bool:
        """Every extension of the cell by one invocation has a row."""
        return len(cell[1]) < len(self._choices) and self._children[cell] == self._choices[len(cell[1])]

    def count(self, cell: Cell) -> bool:
        """Its turn has come. Whether it counts as newly bought."""
        if cell in self.counted:
            return False
        self.counted.add(cell)
        row = self.known[cell]
        self.coverage.add(row)
        self.bounds.learn(row)
        return True

    def all_counted(self) -> Account:
        """This, with every row counted, whoever bought it and when."""
        for request_id, prefix in sorted(self.known, key=lambda cell: len(cell[1])):
            if request_id in self.requests:
                self.count((request_id, prefix))
        return self

    @property
    def has_gap(self) -> bool:
        """Rows are there whose turn has not come: some before them are missing."""
        return any(cell not in self.counted for cell in self.known if cell[0] in self.requests)

    def is_open(self, cell: Cell) -> bool:
        """The counted rows say that its request gets there."""
        request_id, prefix = cell
        return len(prefix) == 1 or (request_id, prefix[:-1]) in self.counted

    def interval(self) -> tuple[float, float]:
        """Bounds of coverage, refitted now and then."""
        if len(self.counted) >= self._interval_at * _REFIT or self.coverage.is_complete:
            self._interval, self._interval_at = self.coverage.interval(), len(self.counted)
        low, high = self._interval
        return min(low, self.coverage.fraction), max(high, self.coverage.fraction)
