"""Runs code outside VineLM that may raise: functions of the application, classes of packages, parsing of servers' answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def explained(
    say: Callable[[Exception], Exception], *, passes: tuple[type[Exception], ...] = (), hides: bool = False
) -> Iterator[None]:
    """Replace an error of the block by an error whose one-line message says what to fix.

    Args:
        say: Returns the error to raise in place of the original error.
        passes: Types of errors that are raised unchanged.
        hides: Whether to leave out the original error from the chain of causes, because its text may contain a prompt or a key.
    """
    try:
        yield
    except passes:
        raise
    except Exception as error:
        found = say(error)
        raise found from (None if hides else error)


def answered(ask: Callable[[], T], otherwise: T) -> T:
    """Return what ``ask`` returns, or ``otherwise`` if ``ask`` raises an exception."""
    try:
        return ask()
    except Exception:
        return otherwise
