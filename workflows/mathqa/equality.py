"""Returns an answer's signal, which needs no label, and decides whether two answers have the same value.

Plain numbers are compared exactly, everything else by the library math-verify in a limited process.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from vinelm.extras import require_extra
from vinelm.requests.workflow import Request
from vinelm.workflows.limited.session_process import GRACE_S
from vinelm.workflows.limited.sessions import Sessions, is_supported
from vinelm.workflows.mathqa.arithmetic import number

ANSWER = ("answer",)
"""The key of the state that holds the answer."""
TIMEOUT_S = 3.0
"""The maximum seconds of one comparison by math-verify; most take milliseconds."""
MOST_CHARS = 200
"""The maximum length of a text that is compared by value; longer texts equal only themselves."""
NEAR = 2e-6
"""The difference of two numbers up to which one may be the other, rounded; math-verify decides whether they are equal."""
SESSIONS = Sessions("vinelm.workflows.mathqa.equality_process", "compares answers")
_SILENT_S = 5.0
"""Seconds after the time limit at which a process is given up, if the machine is too busy to kill it in time."""


def math_signal(state: Mapping[str, Any]) -> str:
    """Return the check's result: ``"holds"``, ``"choice"``, ``"differs"``, ``"no check"`` or ``"no answer"``.

    :data:`~vinelm.workflows.mathqa.graph.REPORTS` has the meaning of each.
    """
    return str(state["check"])


def same_answer(one: str, other: str) -> bool:
    """Return whether two answers have the same value. An empty answer is equal to nothing, not even to itself."""
    first, second = sorted((one, other))
    return bool(first) and same_text(first, second)


def is_right(request: Request, state: Mapping[str, Any]) -> bool:
    """Return whether the state's answer to the request is right."""
    answer = state.get("answer")
    return isinstance(answer, str) and bool(answer) and same_text(str(request.data["answer"]), answer)


def same_text(expected: str, given: str) -> bool:
    """Return whether two answers are equal: choice letters literally, everything else by value."""
    if is_letter(expected) or is_letter(given):
        return expected == given
    return is_equal(expected, given)


def is_letter(text: str) -> bool:
    """Return whether the text is a single capital letter, such as the letter of an option in a multiple-choice question."""
    return len(text) == 1 and "A" <= text <= "Z"


def require_math_verify() -> None:
    """Raise :class:`ConfigError` if math-verify is not installed."""
    require_extra("workloads", "mathqa", "math_verify")


@lru_cache(maxsize=100_000)
def is_equal(expected: str, given: str) -> bool:
    """Return whether two answers have the same value. Any number of threads may call it.

    Two plain numbers are compared exactly here. Otherwise math-verify decides, in a process that is killed after
    :data:`TIMEOUT_S` seconds and has 1 GB of memory. Answers whose comparison needs more are not equal. The first such call
    starts the process, which is then reused.

    Args:
        expected: the right answer, or one of two answers.
        given: the other answer.

    Raises:
        ConfigError: math-verify is needed and not installed.
    """
    expected, given = expected.strip(), given.strip()
    if expected == given:
        return bool(given)
    if not expected or not given or max(len(expected), len(given)) > MOST_CHARS:
        return False
    one, other = number(expected), number(given)
    if one is not None and other is not None and (one == other or abs(one - other) > NEAR):
        return one == other
    require_math_verify()
    return _judged(expected, given)


def _judged(expected: str, given: str) -> bool:
    if not is_supported():
        from vinelm.workflows.mathqa.equality_process import same_value

        return same_value(expected, given)
    with SESSIONS.one() as session, suppress(OSError):
        session.settimeout(TIMEOUT_S + GRACE_S + _SILENT_S)
        session.sendall(json.dumps([expected, given, TIMEOUT_S]).encode() + b"\n")
        said = _line(session)
        if said:
            return said == b"1\n"
    return False


def _line(session: socket.socket) -> bytes:
    """Read a session's answer, which has two bytes, and return it.

    If the session's process is gone, the result is shorter or empty, and the session is closed.
    """
    said = b""
    try:
        said = session.recv(2, socket.MSG_WAITALL)
    finally:
        if len(said) < 2:
            session.close()
    return said
