"""A function to write: the task, the tests that the loop may see, hidden tests that judge, and solutions right and wrong."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True, slots=True)
class Task:
    """``failing`` is turned down by the visible tests, ``slipping`` only by the hidden ones. ``hard`` is in [0, 1]."""

    name: str
    text: str
    right: str
    failing: str
    slipping: str
    visible: tuple[str, ...]
    hidden: tuple[str, ...]
    hard: float

    def tests(self, checks: tuple[str, ...]) -> str:
        """The checks as pytest code."""
        body = "\n".join(f"    assert {check}" for check in checks)
        return f"from solution import {self.name}\n\n\ndef test_{self.name}():\n{body}\n"


def task(name: str, text: str, codes: tuple[str, str, str], visible: str, hidden: str, *, hard: float) -> Task:
    """``codes`` are the right, the failing and the slipping solution; checks stand one on a line."""
    right, failing, slipping = (dedent(code).strip() + "\n" for code in codes)
    seen, unseen = (tuple(line.strip() for line in block.strip().splitlines()) for block in (visible, hidden))
    return Task(name, text, right, failing, slipping, seen, unseen, hard)
