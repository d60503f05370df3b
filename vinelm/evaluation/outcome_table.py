"""Complete tables of independent first answers: the answer of each system (such as a model) to each request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vinelm.errors import ConfigError
from vinelm.requests.protocols import RequestPath
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie.arrays import BoolArray, FloatArray

_ARRAYS = ("success", "signal", "passed", "answer_class", "cost_usd")
NO_ANSWER = -1
"""The class of a call without an answer; agrees with nothing."""
NO_SIGNAL = -1
"""The label of a call where no signal is declared."""


class OutcomeCell(NamedTuple):
    """One call on a path: the request's row index, the models up to this call, and whether an earlier answer passed the
    check.
    """

    row: int
    prefix: tuple[str, ...]
    is_continued: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class OutcomeTable:
    """The first answer of each system to each request, with the answer's outcome. A system is an alternative to choose
    from, such as a model.

    A system that is called again repeats its answer and cost, and no answer depends on earlier answers. So the exact
    result of every policy over these systems follows from the table.

    Args:
        request_ids: The requests, in row order.
        systems: Names of the systems, in column order.
        success: Whether the answer is correct by the ground truth; shape (requests, systems).
        signal: The value of the application's signal for each answer, as an index into ``labels``; :data:`NO_SIGNAL` if
            no signal is declared; same shape.
        labels: The possible values of the signal.
        passed: Whether the application's own check passed the answer; same shape.
        answer_class: A number for each answer. Answers to the same request agree if their numbers are equal;
            :data:`NO_ANSWER` without an answer; same shape.
        cost_usd: Dollars of the call, >= 0; same shape.
        groups: The name of each request's group. Requests of one group depend on each other, so they stay on the same
            side of a split, and a bootstrap draws them together.

    Raises:
        ConfigError: A shape differs, a name repeats, or a label, class or amount is out of range.
    """

    request_ids: tuple[str, ...]
    systems: tuple[str, ...]
    success: BoolArray
    signal: npt.NDArray[np.int64]
    labels: tuple[str, ...]
    passed: BoolArray
    answer_class: npt.NDArray[np.int64]
    cost_usd: FloatArray
    groups: tuple[str, ...]

    def __post_init__(self) -> None:
        shape = (len(self.request_ids), len(self.systems))
        for name in _ARRAYS:
            found = getattr(self, name).shape
            if found != shape:
                raise ConfigError(f"{name} has shape {found}: the table needs {shape}")
        if len(self.groups) != shape[0]:
            raise ConfigError(f"groups has {len(self.groups)} items: the table has {shape[0]} requests")
        for name in ("request_ids", "systems", "labels"):
            if len(set(getattr(self, name))) != len(getattr(self, name)):
                raise ConfigError(f"{name}: a name repeats")
        if self.signal.size and not (self.signal.min() >= NO_SIGNAL and self.signal.max() < len(self.labels)):
            raise ConfigError(f"signal: an index is outside of the {len(self.labels)} labels")
        if self.answer_class.size and self.answer_class.min() < NO_ANSWER:
            raise ConfigError(f"answer_class: classes are counted from 0, and {NO_ANSWER} is no answer")
        if not np.all(np.isfinite(self.cost_usd)) or np.any(self.cost_usd < 0):
            raise ConfigError("cost_usd: dollars must be finite numbers >= 0")

    def __len__(self) -> int:
        return len(self.request_ids)

    @cached_property
    def column(self) -> dict[str, int]:
        """The column index of each system."""
        return {name: m for m, name in enumerate(self.systems)}

    @cached_property
    def _row(self) -> dict[str, int]:
        return {request_id: r for r, request_id in enumerate(self.request_ids)}

    def columns(self, systems: Sequence[str]) -> npt.NDArray[np.intp]:
        """Return the column indices of these systems.

        Raises:
            ConfigError: The table lacks a system.
        """
        for name in systems:
            if name not in self.column:
                raise ConfigError(f"unknown system {name!r}: the table has {', '.join(self.systems)}")
        return np.array([self.column[name] for name in systems], np.intp)

    def rows(self, requests: Sequence[int]) -> OutcomeTable:
        """Return the table of only the requests with these row indices."""
        keep = np.asarray(requests, dtype=np.intp)
        named: dict[str, Any] = {name: getattr(self, name)[keep] for name in _ARRAYS}
        named |= {name: tuple(getattr(self, name)[r] for r in keep) for name in ("request_ids", "groups")}
        return replace(self, **named)

    def cells(self, path: RequestPath) -> Iterator[OutcomeCell]:
        """Yield a path's calls in order, up to the first answer that passes the check, or up to the path's end if
        ``path`` says that it continues past such answers.

        Raises:
            ConfigError: The table lacks the request or a model, or the path names models by stage.
        """
        row, has_passed = self._row.get(path.request_id), False
        if row is None:
            raise ConfigError(f"unknown request {path.request_id!r}")
        for depth, model in enumerate(path.path, start=1):
            if not isinstance(model, str) or model not in self.column:
                raise ConfigError(f"the path names {model!r}: the table has {', '.join(self.systems)}")
            yield OutcomeCell(row, tuple(str(name) for name in path.path[:depth]), has_passed)
            has_passed |= bool(self.passed[row, self.column[model]])
            if has_passed and not path.goes_on:
                return

    def observations(self, paths: Iterable[RequestPath], template: Template) -> list[Observation]:
        """Return the rows that running these paths would record, in order. A call that several paths share is recorded
        once.

        Answer classes are numbered within a request in the order of the request's rows, as in a store, so they reveal
        nothing about systems that were not called.

        Args:
            paths: Requests and models; see :meth:`cells`.
            template: The workflow's stages, one after another without branches: the stage names of the first, second,
                ... call.

        Raises:
            ConfigError: See :meth:`cells`.
        """
        return self.observations_of(dict.fromkeys(cell for path in paths for cell in self.cells(path)), template)

    def observations_of(self, cells: Iterable[OutcomeCell], template: Template) -> list[Observation]:
        """Return the recorded results of these distinct calls; the template is that of :meth:`observations`."""
        stages = [stage.name for stage in template.invocations]
        numbers: dict[int, dict[int, int]] = {}
        return [self._observation(cell, stages[len(cell.prefix) - 1], numbers.setdefault(cell.row, {})) for cell in cells]

    def _observation(self, cell: OutcomeCell, stage: str, numbers: dict[int, int]) -> Observation:
        at = cell.row, self.column[cell.prefix[-1]]
        label, kind = int(self.signal[at]), int(self.answer_class[at])
        return Observation(
            request_id=self.request_ids[cell.row],
            prefix=cell.prefix,
            stage=stage,
            success=bool(self.success[at]),
            stopped=bool(self.passed[at]),
            cost_usd=float(self.cost_usd[at]),
            latency_s=0.0,
            signal=None if label == NO_SIGNAL else self.labels[label],
            answer_class=None if kind == NO_ANSWER else numbers.setdefault(kind, len(numbers)),
            is_continued=cell.is_continued,
        )
