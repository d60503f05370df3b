"""One generated problem, and the words that its text is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from vinelm.workflows.nl2sql.bundled.seeded_random import Dice

PEOPLE = (
    "Amara", "Bela", "Chidi", "Dana", "Emil", "Farah", "Goran", "Hana", "Ivo", "Jun", "Kofi", "Lena", "Mira", "Nuno", "Oskar",
    "Priya", "Quentin", "Rosa", "Samir", "Tilda", "Umar", "Vera", "Wim", "Yara", "Zoltan",
)  # fmt: skip
THINGS = (
    "notebooks", "candles", "seedlings", "postcards", "marbles", "mugs", "stickers", "batteries", "lanterns", "buttons",
    "jars of honey", "bookmarks", "light bulbs", "tulip bulbs", "keyrings",
)  # fmt: skip
PLACES = ("the harbour", "the old mill", "the lake", "the museum", "the airport", "the farm", "the castle", "the coast")


@dataclass(frozen=True, kw_only=True)
class MathProblem:
    """A problem in words with its exact answer.

    Args:
        kind: the template that made it.
        topic: ``arithmetic``, ``fractions``, ``rates``, ``percentages``, ``systems``, ``number theory`` or ``combinatorics``.
        question: the text.
        numbers: what the template drew, in its own order.
        answer: the exact value.
        calculation: an arithmetic expression whose value is the answer.
        mistakes: expressions of what people compute instead, the usual mistake first. Their values differ from the answer.
        steps: how many operations it takes, at least 1.
        is_decimal: whether the answer is written with decimals (money), not as a fraction.
    """

    kind: str
    topic: str
    question: str
    numbers: tuple[int, ...]
    answer: Fraction
    calculation: str
    mistakes: tuple[str, ...]
    steps: int
    is_decimal: bool = False

    @property
    def answer_text(self) -> str:
        """The answer as text: ``12``, ``7/12`` or ``12.50``."""
        if self.is_decimal and self.answer.denominator != 1:
            return f"{float(self.answer):.2f}"
        return str(self.answer)


ProblemTemplate = Callable[[Dice], MathProblem]
"""Draws one problem."""
