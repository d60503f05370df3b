"""Builds prompts, and extracts the answer and the calculation from a model's text."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

SYSTEM = """You solve math problems and multiple-choice questions. Reason step by step and briefly. End with two lines:
Check: one arithmetic expression whose value is your answer. It may have numbers, + - * / // % ** ( ) and the functions \
factorial(n), comb(n, k), perm(n, k), gcd(a, b), lcm(a, b), floor(x), ceil(x). Leave the line out for multiple choice.
Answer: your answer without a unit, or the letter of your choice."""
SOLVE = """Problem:
{question}"""
REFLECT = """Problem:
{question}

An earlier solution:
{text}

What a check of it found: {report}

Say in one sentence where that solution may be wrong. Then solve the problem again from the start, and end as told."""
MOST_CHARS = 20_000
"""The maximum number of characters of a text that are read, counted from its end."""
_LINE = r"^[ \t>*#_-]*{name}[ \t*_]*[:=][ \t]*(.*)$"
_ANSWER = re.compile(_LINE.format(name=r"(?:final )?answer"), re.I | re.M)
_CHECK = re.compile(_LINE.format(name="check"), re.I | re.M)
_HASHES = re.compile(r"^#### *(.+)$", re.M)
_BOXED = "\\boxed{"
_SHORT = 20
"""The maximum length of a text of one line that counts as an answer without any mark."""
_LETTER = re.compile(r"\(?([A-Z0-9])\)?(?:[).:,].*)?", re.S)


class WrittenSolution(NamedTuple):
    """The answer in a model's text, and the calculation that leads to it; each is empty if the text has none."""

    answer: str
    calculation: str


def read_solution(text: str, letters: str = "") -> WrittenSolution:
    r"""Return the answer and the calculation in a model's text. Never raises.

    The answer is what follows the last ``Answer:``, else the last ``\boxed{...}``, else the last ``####``, else the whole
    text if it is one short line. Markdown and ``$`` around it are removed.

    Args:
        text: the model's text.
        letters: for multiple choice, the letters or digits of the choices: the answer is one of them, or empty.
    """
    end = text[-MOST_CHARS:]
    answer = _stripped(_last(_ANSWER, end) or _boxed(end) or _last(_HASHES, end) or _short(end))
    if letters:
        found = _LETTER.fullmatch(answer)
        return WrittenSolution(found[1] if found is not None and found[1] in letters else "", "")
    return WrittenSolution(answer if any(character.isalnum() for character in answer) else "", _stripped(_last(_CHECK, end)))


def _last(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.findall(text)
    return str(found[-1]) if found else ""


def _short(text: str) -> str:
    line = text.strip()
    return line if len(line) <= _SHORT and "\n" not in line and not line.endswith(":") else ""


def _boxed(text: str) -> str:
    r"""Return the content of the last ``\boxed{...}``, with balanced brackets; empty if there is none."""
    start = text.rfind(_BOXED)
    depth = 1
    for end in range(start + len(_BOXED), len(text)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if not depth:
            return text[start + len(_BOXED) : end]
    return ""


def _stripped(text: str) -> str:
    plain = text.strip().strip("*_`").strip().removesuffix(".")
    plain = _boxed(plain) or plain
    if len(plain) > 1 and plain[0] == plain[-1] == "$":
        plain = plain[1:-1]
    return plain.strip()


def digest() -> str:
    """Return a hash of all prompts, which changes if any prompt changes."""
    return hashlib.sha256("\0".join((SYSTEM, SOLVE, REFLECT)).encode()).hexdigest()
