"""A coding task: a text, visible tests for the loop, hidden tests for scoring, and right and wrong solutions."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent


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


def task(name: str, text: str, codes: tuple[str, str, str], visible: str, hidden: str, *, hard: float) -> Task:
    """Build a task; ``codes`` are ``right``, ``failing_visible`` and ``passing_visible``, checks are one per line."""
    right, failing, passing = (dedent(code).strip() + "\n" for code in codes)
    seen, unseen = (tuple(line.strip() for line in block.strip().splitlines()) for block in (visible, hidden))
    return Task(name, text, right, failing, passing, seen, unseen, hard)
