"""The applications of the strangers' trial: what they are asked, and which model each of their stages has today."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PRICES = {"tiny": (0.1, 0.4), "mid": (0.5, 2.0), "big": (3.0, 12.0)}
"""Dollars per million tokens, in and out, of the simulated models."""
PROFILED, HELD_OUT = 320, 120
"""Questions in the dataset, and questions that are served afterwards."""


def by_hand(question: str) -> str:
    """The `if` that anybody would write: a product goes to the big model, a sum to the tiny one."""
    return "big" if "*" in question else "tiny"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One application.

    Attributes:
        name: Its folder.
        target: What ``vinelm init`` is given.
        column: The dataset's column with the question.
        suffix: The dataset's format.
        today: The model of each stage, as the source names it; ``"*"`` is every other stage.
        wording: How its users ask.
        resumes_with: What a person answers where the graph waits; None if it never does.
        is_async: Whether its nodes are coroutines.
        by_hand: The hand-written rule that it is compared with; None without one.
    """

    name: str
    target: str = "app.py:graph"
    column: str = "question"
    suffix: str = "csv"
    today: Mapping[str, str] = field(default_factory=lambda: {"*": "big"})
    wording: str = "What is {a} {sign} {b}?"
    resumes_with: str | None = None
    is_async: bool = False
    by_hand: Callable[[str], str] | None = by_hand

    @property
    def dataset(self) -> str:
        """The dataset's name."""
        return f"qa.{self.suffix}"

    def model_today(self, stage: str) -> str:
        """The model that the source names for a stage."""
        return self.today.get(stage, self.today["*"])


CASES = (
    Case(name="functional"),
    Case(name="agent_middleware"),
    Case(name="supervisor"),
    Case(name="swarm", suffix="jsonl"),
    Case(name="deep_agent", today={"*": "big", "sum_worker": "mid"}),
    Case(name="agentic_rag"),
    Case(
        name="email_assistant",
        column="email",
        wording="Dear team, our order has {a} {sign} {b} parts. How many are these? Ana",
        resumes_with="accept",
    ),
    Case(name="service_toolkit", today={"*": "big", "guard_input": "mid"}, is_async=True),
    Case(name="debate", column="topic", today={"*": "mid", "manager": "big"}, wording="How much is {a} {sign} {b}?"),
    Case(name="deep_research", column="topic", suffix="jsonl", wording="Find out what {a} {sign} {b} gives."),
    Case(name="goto_handoff"),
    Case(name="sdk_loop", target="app.py:run"),
    Case(name="subgraphs"),
    Case(name="class_built", column="query", today={"*": "big", "classify": "mid"}),
    Case(name="model_edge"),
    Case(name="two_calls", target="app.py:answer"),
)


def write_questions(case: Case, folder: Path, seed: int) -> None:
    """Write the dataset and ``held_out``, in the same format: two sums for each product, no question twice."""
    rng, rows, seen = random.Random(f"{case.name} {seed}"), list[dict[str, str]](), set[tuple[int, int]]()
    while len(rows) < PROFILED + HELD_OUT:
        a, b = rng.randrange(11, 99), rng.randrange(11, 99)
        if (a, b) in seen:
            continue
        seen.add((a, b))
        sign = "++*"[len(rows) % 3]
        answer = a + b if sign == "+" else a * b
        rows.append({case.column: case.wording.format(a=a, b=b, sign=sign), "answer": str(answer)})
    _write(folder / case.dataset, rows[:PROFILED])
    _write(folder / f"held_out.{case.suffix}", rows[PROFILED:])


def _write(path: Path, rows: list[dict[str, str]]) -> None:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
