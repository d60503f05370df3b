"""Follows a policy over a complete table of answers; requests with equal histories are processed together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vinelm.evaluation.off_policy.steps import Seen, StepRule
from vinelm.evaluation.outcome_table import NO_ANSWER, NO_SIGNAL, OutcomeCell, OutcomeTable
from vinelm.template import Template


class WalkEnd(NamedTuple):
    """A group of requests that a policy ends after the same history of outcomes.

    Args:
        rows: The indices of the requests in the table, shape (requests,).
        columns: The column indices of the systems (models) that ran, in order.
        returned: The index, in ``columns``, of the system whose answer is returned.
        seen: The recorded results of the first of these requests. All of them have the same outcomes, but their costs
            differ.
    """

    rows: npt.NDArray[np.intp]
    columns: tuple[int, ...]
    returned: int
    seen: Seen

    def right(self, table: OutcomeTable) -> int:
        """Return how many of the requests end with a right answer."""
        return int(table.success[self.rows, self.columns[self.returned]].sum())


def walk_ends(policy: StepRule, table: OutcomeTable, template: Template) -> Iterator[WalkEnd]:
    """Run a policy on all requests of a table, and yield the requests in groups with the same calls and outcomes.

    Args:
        policy: A policy that decides by outcomes, not by cost or latency.
        table: The requests, at least one.
        template: The workflow's stages, one after another without branches; each may run on the table's systems.
    """
    yield from _ends(policy, table, template, np.arange(len(table)), ())


def _ends(
    policy: StepRule, table: OutcomeTable, template: Template, rows: npt.NDArray[np.intp], systems: tuple[str, ...]
) -> Iterator[WalkEnd]:
    columns = tuple(table.column[name] for name in systems)
    seen = _seen(table, template, int(rows[0]), systems)
    step = policy.step(seen)
    if step.model is None:
        yield WalkEnd(rows, columns, range(len(columns))[step.returned], seen)
        return
    shown = _shown(table, rows, (*columns, table.column[step.model]))
    for kind in np.flatnonzero(np.bincount(shown)):
        yield from _ends(policy, table, template, rows[shown == kind], (*systems, step.model))


def _shown(table: OutcomeTable, rows: npt.NDArray[np.intp], columns: tuple[int, ...]) -> npt.NDArray[np.intp]:
    """Return, for each request in ``rows``, a number that identifies its last outcome; same shape as ``rows``.

    Equal numbers mean equal outcomes. ``columns`` are the table's columns of the calls so far. The outcome consists of the
    check's result, the signal, and the first of these calls whose answer agrees with the last answer.
    """
    last = columns[-1]
    kind = table.answer_class[rows, last]
    agrees = np.full(len(rows), len(columns))
    for i in range(len(columns) - 2, -1, -1):
        agrees[(table.answer_class[rows, columns[i]] == kind) & (kind != NO_ANSWER)] = i
    agrees[kind == NO_ANSWER] = len(columns) - 1
    signals = len(table.labels) - NO_SIGNAL
    number = (agrees * signals + table.signal[rows, last] - NO_SIGNAL) * 2 + table.passed[rows, last]
    return np.asarray(number, np.intp)


def _seen(table: OutcomeTable, template: Template, row: int, systems: tuple[str, ...]) -> Seen:
    cells, has_passed = [], False
    for depth, name in enumerate(systems, start=1):
        cells.append(OutcomeCell(row, systems[:depth], has_passed))
        has_passed |= bool(table.passed[row, table.column[name]])
    return tuple(table.observations_of(cells, template))
