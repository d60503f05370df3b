"""Limits the time for importing the user's code, which might otherwise never return."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vinelm.errors import ConfigError, WorkflowError
from vinelm.io.operating_system import ended_after

IMPORT_LIMIT = "VINELM_IMPORT_LIMIT_S"
"""Name of the environment variable with the time limit in seconds."""
USUAL_S = 120.0


@contextmanager
def import_limited(what: str, place: Callable[[], str] = str) -> Iterator[None]:
    """Raise an error if the ``with`` block takes longer than the time limit for imports; see
    :func:`~vinelm.io.operating_system.ended_after`.

    Args:
        what: What the block does, for the error message, such as ``importing 'app'``.
        place: Called when the time is over; returns text such as ``" (at app.py:7)"`` with the line of code that is
            running then.

    Raises:
        ConfigError: The environment variable ``VINELM_IMPORT_LIMIT_S`` is not a valid time.
        WorkflowError: The block took longer than the limit.
    """
    limit_s = _limit_s()

    class TooLongError(BaseException):  # a BaseException, to pass the handlers of the application
        def __init__(self) -> None:
            super().__init__(place())

    try:
        with ended_after(limit_s, TooLongError):
            yield
    except TooLongError as found:
        raise WorkflowError(
            f"{what} takes longer than {limit_s:g} s{found}: move what takes so long, or waits, into a function, or below "
            f'`if __name__ == "__main__":` ({IMPORT_LIMIT}=600 allows 600 s)'
        ) from None


def _limit_s() -> float:
    text = os.environ.get(IMPORT_LIMIT) or str(USUAL_S)
    try:
        limit_s = float(text)
    except ValueError:
        limit_s = 0.0
    if not 0.0 < limit_s < 1e7:
        raise ConfigError(f"{IMPORT_LIMIT}={text!r} is no time in seconds: write a number above 0")
    return limit_s
