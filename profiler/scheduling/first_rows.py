"""Notices that a stage is broken: that all of its first rows failed alike, whatever the model.

With a stage that works, even one whose invocations fail half of the time and always for one reason, eight such rows in a row
come up in 1 of 256 runs. A model that always fails is no reason to stop: that is what a profile finds out.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Sequence

from vinelm.rows.observation import Cell, Observation
from vinelm.template import Template

BROKEN_AFTER = 8
"""How many first rows of a stage must fail alike."""


def only_failures(rows: Sequence[Observation]) -> str | None:
    """Return in one line that every row failed, and most often of what kind; None if some row did not, or there is none."""
    if not rows or any(row.failure is None for row in rows):
        return None
    (kind, _), *others = Counter(map(_kind, rows)).most_common()
    usd = math.fsum(row.cost_usd + row.tool_cost_usd for row in rows)
    how = f"most often by {kind}" if others else kind
    what = f"all {len(rows):,} rows failed" if len(rows) > 1 else "the only row failed"
    return f"{what} ({how}), which cost ${usd:.4f}"


class FirstRows:
    """The first rows of each stage, in the order in which they are committed.

    Args:
        template: a bound template.
        after: how many rows must fail alike; None to notice nothing.
    """

    def __init__(self, template: Template, after: int | None = BROKEN_AFTER) -> None:
        self._after = math.inf if after is None else after
        self._models = {stage.name: len(stage.models or ()) for stage in template.stages}
        self._failed: dict[str, list[Observation] | None] = {}  # None: some row succeeded, or failed in another way

    def add(self, row: Observation) -> str | None:
        """Add a committed row; returns in one line what is broken once a stage's rows show it."""
        self._note(row)
        return self._broken(row.stage)

    def broken_cells(self) -> list[Cell]:
        """The rows of stages that are broken."""
        stages = [stage for stage in self._failed if self._broken(stage) is not None]
        return [(row.request_id, row.prefix) for stage in stages for row in self._rows(stage)]

    def ahead(self) -> PossiblyBroken:
        """Return what rows that are not committed yet may show."""
        return PossiblyBroken({stage: len(self._rows(stage)) for stage in self._models if self.is_open(stage)}, self._after)

    def _note(self, row: Observation) -> None:
        failed = self._failed.setdefault(row.stage, [])
        if failed is None:
            return
        if row.failure is None or (failed and _kind(row) != _kind(failed[0])):
            self._failed[row.stage] = None
        else:
            failed.append(row)

    def _broken(self, stage: str) -> str | None:
        rows = self._rows(stage)
        models = {row.model for row in rows}
        if len(rows) < self._after or len(models) < min(2, self._models.get(stage, 1)):
            return None
        usd = math.fsum(row.cost_usd + row.tool_cost_usd for row in rows)
        return (
            f"stage {stage!r} is broken: all of its first {len(rows)} rows failed alike, whatever the model "
            f"({_kind(rows[0])}), which cost ${usd:.4f}"
        )

    def is_open(self, stage: str) -> bool:
        """True if the stage may still turn out to be broken: every row so far failed, and alike."""
        return self._after < math.inf and (stage not in self._failed or self._failed[stage] is not None)

    def _rows(self, stage: str) -> list[Observation]:
        return self._failed.get(stage) or []


class PossiblyBroken:
    """True if the cells before one that is to start may show that a stage is broken: then a run of one unit at a time might
    never come to it.
    """

    def __init__(self, failed: dict[str, int], after: float) -> None:
        self._failed, self._after = copy.copy(failed), after
        self.may_stop = False

    def pass_cell(self, stage: str, row: Observation | None) -> None:
        """Add the next cell in order; ``row`` where it is executed."""
        if stage not in self._failed:
            return
        if row is not None and row.failure is None:
            del self._failed[stage]
            return
        # A cell without a row, and a failure of whatever kind, counts as one that is alike: at worst a unit starts
        # later than it could.
        self._failed[stage] += 1
        self.may_stop = self.may_stop or self._failed[stage] >= self._after


def _kind(row: Observation) -> str:
    """The key that equal failures share: of the application's code the exception and its place, of a call its kind."""
    if row.failure not in ("tool", "state", "crash", "unexpected_arm"):
        return str(row.failure)  # the text names the model
    detail = (row.detail or "").partition(":")[0] if row.failure == "crash" else row.detail or ""  # not what it printed last
    return f"{row.failure}: {detail}" if detail else row.failure
