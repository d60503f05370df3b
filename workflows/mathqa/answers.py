"""What an answer shows without the right one, and whether two answers are the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vinelm.requests.workflow import Request
from vinelm.workflows.mathqa.equality import is_equal

ANSWER = ("answer",)
"""The key of the state that makes an answer."""


def math_signal(state: Mapping[str, Any]) -> str:
    """Return what the check found: ``"holds"``, ``"choice"``, ``"differs"``, ``"no check"`` or ``"no answer"``."""
    return str(state["check"])


def same_answer(one: str, other: str) -> bool:
    """Return whether two answers are the same value; symmetric. An empty answer agrees with nothing, not even with itself."""
    first, second = sorted((one, other))
    return bool(first) and same_text(first, second)


def is_right(request: Request, state: Mapping[str, Any]) -> bool:
    """Return whether the state's answer is the request's right one."""
    answer = state.get("answer")
    return isinstance(answer, str) and bool(answer) and same_text(str(request.data["answer"]), answer)


def same_text(expected: str, given: str) -> bool:
    """Return whether two answers are equal: letters of choices as they are, anything else by value."""
    if is_letter(expected) or is_letter(given):
        return expected == given
    return is_equal(expected, given)


def is_letter(text: str) -> bool:
    """Return whether it is one capital letter, as choices are named."""
    return len(text) == 1 and "A" <= text <= "Z"
