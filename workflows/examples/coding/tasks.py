"""The coding tasks: a text, visible tests for the loop, hidden tests for scoring, and right and wrong solutions."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Task:
    """A function to write.

    Args:
        name: name of the function.
        text: the task.
        right: a solution.
        failing_visible: a wrong solution that fails the visible tests.
        passing_visible: a wrong solution that fails only the hidden tests.
        visible: expressions that must be true, for the loop.
        hidden: expressions that must be true, for scoring.
        hard: difficulty in [0, 1].
    """

    name: str
    text: str
    right: str
    failing_visible: str
    passing_visible: str
    visible: tuple[str, ...]
    hidden: tuple[str, ...]
    hard: float

    def tests(self, checks: tuple[str, ...]) -> str:
        """Return the checks as pytest code."""
        body = "\n".join(f"    assert {check}" for check in checks)
        return f"from solution import {self.name}\n\n\ndef test_{self.name}():\n{body}\n"


def _task(row: dict[str, Any]) -> Task:
    checks = {name: tuple(row[name].splitlines()) for name in ("visible", "hidden")}
    return Task(**{**row, **checks})


TASKS = tuple(map(_task, tomllib.loads((Path(__file__).parent / "data" / "tasks.toml").read_text(encoding="utf-8"))["task"]))
