"""The coding tasks: a text, visible tests for the loop, hidden tests for scoring, and right and wrong solutions."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Task:
    """A function to write.

    Args:
        name: name of the function.
        text: the task.
        right: a solution.
        failing_visible: a wrong solution that fails the visible tests.
        passing_visible: a wrong solution that fails only the hidden tests.
        visible: expressions that must be true, one a line, for the loop.
        hidden: the same for scoring.
        hard: difficulty in [0, 1].
    """

    name: str
    text: str
    right: str
    failing_visible: str
    passing_visible: str
    visible: str
    hidden: str
    hard: float


TASKS = tuple(
    Task(**{name: value.lstrip("\n") if name in ("visible", "hidden") else value for name, value in row.items()})
    for row in tomllib.loads((Path(__file__).parent / "data" / "tasks.toml").read_text(encoding="utf-8"))["task"]
)
