"""The process that compares answers by math-verify: one forked process per session, under limits of the kernel."""

from __future__ import annotations

import json
import logging
import re
from typing import BinaryIO

from vinelm.workflows.limited.session_process import deadline, serve_sessions

SPACE_BYTES = 1 << 30
"""The bytes that a session may map in addition to the process's mappings at its start."""
_COMMAND = re.compile(r"\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{2}")


def main(descriptor: int) -> None:
    """For each socket received over the socket ``descriptor``, fork a process that compares answers.

    Return when the application has ended.
    """
    import math_verify  # noqa: F401 - before the first fork: it takes a second

    serve_sessions(descriptor, _answer, space_bytes=SPACE_BYTES)


def _answer(line: bytes, answers: BinaryIO) -> None:
    expected, given, timeout_s = json.loads(line)
    with deadline(timeout_s):
        answers.write(b"1\n" if same_value(expected, given) else b"0\n")
        answers.flush()


def same_value(expected: str, given: str) -> bool:
    """Return whether math-verify finds the two texts equal. The time limit is not set here but in the process of :func:`main`.

    Text with words is read as plain text, so that ``12 km`` is 12; other text as LaTeX.
    """
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns about disabled time limits, which need main threads
    read = [parse(_marked(text), parsing_timeout=None) for text in (expected, given)]
    return all(read) and bool(verify(*read, timeout_seconds=None))


def _marked(text: str) -> str:
    plain = text.replace("$", "")
    return plain if _WORD.search(_COMMAND.sub("", plain)) else f"${plain}$"
