"""The cells that may still be executed, as far as the rows of earlier rounds tell, and the models of each invocation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from vinelm.errors import ConfigError, TemplateError
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Template

Prefix = tuple[str, ...]
Models = tuple[str, ...]


def models_by_depth(template: Template) -> list[Models | Mapping[str, Models]]:
    """Return the models that each invocation may run on; by stage where several stages with different models may come.

    Raises:
        ConfigError: several stages may come first, with different models: which one comes is only known once it runs.
    """
    first, *others = template.first_stages
    for other in others:
        if set(other.models or ()) != set(first.models or ()):
            raise ConfigError(
                f"the stages {first.name!r} and {other.name!r} may both come first and allow different models, but which one "
                "comes is only known once it runs: allow the same models in both"
            )
    found: list[Models | Mapping[str, Models]] = []
    for stages in template.flow.stages_at:
        models = {name: template.stage(name).models or () for name in stages}
        one = next(iter(models.values()))
        found.append(one if all(set(other) == set(one) for other in models.values()) else models)
    return found


class OpenCells:
    """Cells without a row whose request, as the rows show, reaches them. A cell that is claimed is no longer open.

    Args:
        template: A bound template.
        request_ids: The requests.
        rows: The rows so far. Those below a passed check (``is_continued``) are kept apart.

    Attributes:
        n_going_on: By first model, the number of requests that have its first answer and an open cell below it.
        continuable: The cells of rows that can go on although the workflow's own check passed their answer, or one before it.
    """

    def __init__(self, template: Template, request_ids: Sequence[str], rows: Sequence[Observation]) -> None:
        self._template = template
        known = set(request_ids)
        self._every = {(row.request_id, row.prefix): row for row in rows if row.request_id in known}
        self._rows = {cell: row for cell, row in self._every.items() if not row.is_continued}
        self._claimed: set[Cell] = set()
        self._below: dict[Cell, list[str]] = {}
        for cell in sorted(self._rows, key=lambda cell: -len(cell[1])):
            request, prefix = cell
            self._below[cell] = [name for name in self._allowed(cell) if self.is_open(request, (*prefix, name))]
        self.n_going_on = Counter(prefix[0] for (_, prefix), models in self._below.items() if len(prefix) == 1 and models)
        self.continuable = [cell for cell, row in self._every.items() if self._is_continuable(row)]

    def is_new(self, request: str, prefix: Prefix) -> bool:
        """Return whether a cell that is reached has no row and is not claimed."""
        return (request, prefix) not in self._rows and (request, prefix) not in self._claimed

    def is_open(self, request: str, prefix: Prefix) -> bool:
        """Return whether a cell that is reached is new, or has a new one below it."""
        cell = (request, prefix)
        return bool(self._below[cell]) if cell in self._rows else cell not in self._claimed

    def open_below(self, request: str, prefix: Prefix) -> Sequence[str]:
        """Return the models by which a row's request can go on to an open cell."""
        return self._below[request, prefix]

    def claim(self, request: str, prefix: Prefix) -> None:
        """Take a new cell as executed. What it leads to is not known before the next round."""
        self._claimed.add((request, prefix))
        while len(prefix) > 1:
            prefix, model = prefix[:-1], prefix[-1]
            models = self._below[request, prefix]
            models.remove(model)
            if models:
                return
        if (request, prefix) in self._rows:
            self.n_going_on[prefix[0]] -= 1

    def not_continued(self, request: str, prefix: Prefix) -> Sequence[str]:
        """Return the models of the invocation after a continuable cell for which there is no row."""
        stage = self._template.stage_after(len(prefix))
        models = () if stage is None else stage.models or ()
        return [name for name in models if (request, (*prefix, name)) not in self._every]

    def _is_continuable(self, row: Observation) -> bool:
        passed = row.is_continued or bool(row.stopped)
        return passed and row.failure is None and row.depth < self._template.depth

    def _allowed(self, cell: Cell) -> tuple[str, ...]:
        """The models that the request of a row may go on with."""
        row, template = self._rows[cell], self._template
        if row.ended(template.stop):
            return ()
        request, prefix = cell
        before = (self._rows.get((request, prefix[:k])) for k in range(1, row.depth + 1))
        try:
            followers = template.stages_at(row.depth + 1, [one.stage for one in before if one is not None])
        except TemplateError:  # a row from before the template changed: its path leads nowhere now
            return ()
        name = row.next_stage([stage.name for stage in followers])
        return () if name is None else template.stage(name).models or ()
