"""One random guess at what the models do on a template that branches: also which stage each request goes on to."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from vinelm.catalog import Catalog
from vinelm.profiler.dry_run.outcome_model import OutcomeModel, Unit, unit_of
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Template

_PRIOR = 4.0
_END = ""


class BranchingOutcomeModel(OutcomeModel):
    """Rates at which a request ends or goes on to each stage, dollars, calls, tokens and seconds by (depth, stage, model).

    Without rows a request goes on with a rate that is drawn once, and to each stage that may come alike.

    Args:
        template: a bound template that branches.
        catalog: the models.
        rows: to resample from; may be empty.
        rng: consumed by the draws.
    """

    def __init__(self, template: Template, catalog: Catalog, rows: Sequence[Observation], rng: random.Random) -> None:
        super().__init__(template, catalog, rows, rng)
        self._first = _first_stages(rows)
        self._first_counts = Counter(self._first.values())
        self._may_end = _may_end(template)
        self._of_cell: dict[tuple[int, str, str], list[Observation]] = {}
        self._of_stage: dict[tuple[int, str], list[Observation]] = {}
        for row in (row for found in self._of_model.values() for row in found):
            self._of_cell.setdefault((row.depth, row.stage, row.model), []).append(row)
            self._of_stage.setdefault((row.depth, row.stage), []).append(row)
        self._weights: dict[tuple[int, str, str], Mapping[str, float]] = {}

    def stage(self, cell: Cell, possible: Sequence[str]) -> str:
        """See :meth:`OutcomeModel.stage`; that of a request's first invocation is drawn once."""
        if len(possible) == 1:
            return possible[0]
        request_id = cell[0]
        if request_id not in self._first:
            weights = [self._first_counts[name] + _PRIOR / len(possible) for name in possible]
            self._first[request_id] = self._rng.choices(possible, weights)[0]
        return self._first[request_id]

    def unit(self, cell: Cell, stage: str) -> Unit:
        """Draw the outcome of a cell."""
        depth, model = len(cell[1]), cell[1][-1]
        key = (depth, stage, model)
        if key not in self._weights:
            self._weights[key] = self._outcome_weights(*key)
        weights = self._weights[key]
        arm = self._rng.choices(list(weights), list(weights.values()))[0] if weights else _END
        like = self._of_cell.get(key) or self._of_model.get(model)
        if like:
            return unit_of(like[int(self._rng.random() * len(like))], goes_on=arm != _END, arm=arm or None)
        return self._guessed(stage, model, goes_on=arm != _END, arm=arm or None)

    def _outcome_weights(self, depth: int, stage: str, model: str) -> Mapping[str, float]:
        """P(the request goes on to a stage), by its name, and P(it ends); the model's are shrunk to the stage's."""
        arms = self.template.flow.stages_at[depth - 1][stage]
        on = self._overall if (depth, stage) in self._may_end else 1.0
        even = {_END: 1.0 - on, **dict.fromkeys(arms, on / len(arms))} if arms else {}
        of_stage = _shrunk(self._of_stage.get((depth, stage), []), even, self.template)
        return _shrunk(self._of_cell.get((depth, stage, model), []), of_stage, self.template)


def _shrunk(rows: Sequence[Observation], prior: Mapping[str, float], template: Template) -> Mapping[str, float]:
    counts = Counter(_END if row.ended(template.stop) else row.arm for row in rows)
    return {name: (counts[name] + _PRIOR * share) / (len(rows) + _PRIOR) for name, share in prior.items()}


def _first_stages(rows: Sequence[Observation]) -> dict[str, str]:
    """Request to the stage that came first."""
    return {row.request_id: row.stage for row in rows if row.depth == 1}


def _may_end(template: Template) -> frozenset[tuple[int, str]]:
    """The (depth, stage) after which the template lets a request end."""
    flow = template.flow
    return frozenset(
        (depth + 1, stage)
        for position, depth in zip(flow.positions, flow.depths, strict=True)
        for stage, after in position.arms.items()
        if flow.positions[after].may_end
    )
