"""Writes solutions of simulated models: the right calculation, or one with a mistake that the check may miss."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from vinelm.requests.workflow import Request
from vinelm.workflows.mathqa.arithmetic import number, value_of

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")
_SKILLS: Mapping[str, Mapping[str, float]] = {
    "arithmetic": {"filters": 0.2},
    "fractions": {"aggregation": 0.4},
    "rates": {"joins": 0.5, "aggregation": 0.2},
    "percentages": {"dates": 0.4, "filters": 0.2},
    "systems": {"joins": 0.6},
    "number theory": {"nesting": 0.5},
    "combinatorics": {"nesting": 0.7},
}
"""The demands of each topic on a simulated model, in the skills of its preset, which were named for SQL."""


class SolutionWriter:
    """Writes right and wrong solutions, as simulated models would, for requests whose row has an ``answer``.

    Bundled problems have a ``calculation`` and their usual ``mistakes``. For rows without these, the calculation is the answer
    itself and mistakes are numbers near it. Pure: the same request, kind and generator state give the same text.

    Kinds of mistake that pass the check: ``misread`` (the usual mistake), ``wrong_operation`` (another mistake) and
    ``changed_number`` (a wrong number in the right calculation). Kinds that the check detects: ``slip``, an answer that is not
    the value of the calculation, and ``unfinished``, a text without an answer.
    """

    kinds: Sequence[str] = ("misread", "wrong_operation", "changed_number", "slip", "unfinished")
    visible_kinds = frozenset({"slip", "unfinished"})

    def skills(self, request: Request) -> Mapping[str, float]:
        """Return how difficult the request is, by skill, each in [0, 1]; it depends on the topic and the number of steps."""
        steps = int(request.data.get("steps", 3))
        demanded = dict(_SKILLS.get(str(request.data.get("topic")), {}))
        demanded["length"] = min(1.0, max(0, steps - 2) / 6)
        return demanded

    def right(self, request: Request, rng: random.Random) -> str:
        """Return a solution with the right answer, in one of several forms."""
        answer = str(request.data["answer"])
        if "choices" in request.data:
            return rng.choice(("Answer: {}", "The other choices do not fit.\nAnswer: ({})")).format(answer)
        return _solution(self._calculation(request), _written(answer, rng))

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """Return a solution with a mistake of the given kind, or of another kind if that one does not apply."""
        if kind == "unfinished":
            return rng.choice(("Let x be the number that is asked for. Then", "There is not enough information to say."))
        if "choices" in request.data:
            others = [letter for letter in str(request.data["choices"]) if letter != request.data["answer"]]
            usual = others[len(request.id) % len(others)]  # the same for all models
            return f"Answer: {usual if kind == 'misread' else rng.choice(others)}"
        right = number(str(request.data["answer"]))
        calculation = self._calculation(request)
        if right is None:
            return _solution("1 + 1", "2")
        if kind == "slip":
            return _solution(calculation, str(_near(right, rng)))
        mistaken = self._mistaken(request, kind, rng, right) or str(_near(right, rng))
        return _solution(mistaken, str(value_of(mistaken)))

    def _calculation(self, request: Request) -> str:
        return str(request.data.get("calculation", request.data["answer"]))

    def _mistaken(self, request: Request, kind: str, rng: random.Random, right: Fraction) -> str | None:
        """Return a calculation with a mistake of the given kind, whose value is not ``right``; None if none was found."""
        mistakes: Sequence[str] = request.data.get("mistakes") or (str(right + 1), str(right * 2), str(right - 2))
        if kind == "misread":
            return mistakes[0]
        if kind == "wrong_operation" and len(mistakes) > 1:
            return mistakes[1]
        calculation = self._calculation(request)
        places = list(_NUMBER.finditer(calculation))
        rng.shuffle(places)
        for place in places:
            changed = calculation[: place.start()] + _changed(place[0], rng) + calculation[place.end() :]
            value = value_of(changed)
            if value is not None and value != right:
                return changed
        return None


def _solution(calculation: str, answer: str) -> str:
    return f"Step by step, this comes down to {calculation}.\nCheck: {calculation}\nAnswer: {answer}"


def _written(answer: str, rng: random.Random) -> str:
    """Return the answer in one of the notations that models use, chosen at random."""
    ways: list[Callable[[str], str]] = [str, "**{}**".format, "${}$".format, "{}.".format]
    if re.fullmatch(r"\d+/\d+", answer):
        top, below = answer.split("/")
        ways.append(lambda _: f"\\frac{{{top}}}{{{below}}}")
    elif re.fullmatch(r"\d{4,}", answer):
        ways.append(lambda text: f"{int(text):,}")
    return rng.choice(ways)(answer)


def _changed(digits: str, rng: random.Random) -> str:
    """Return the digits of another number of about the same size as ``digits``."""
    if "." in digits:
        return f"{float(digits) + rng.choice((0.1, 0.5, 1.0)):.2f}"
    return str(max(1, int(digits) + rng.choice((-2, -1, 1, 2, 10))))


def _near(right: Fraction, rng: random.Random) -> Fraction:
    """Return a wrong value near ``right``: slightly off, or with an extra digit."""
    return right + rng.choice((-10, -2, -1, 1, 2, 10)) if rng.random() < 0.8 else right * 10 + 1
