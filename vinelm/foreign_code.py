"""Runs code that is not VineLM's own: a function of the application, a class of a package, a server's answer. It may raise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def explained(
    say: Callable[[Exception], Exception], *, passes: tuple[type[Exception], ...] = (), hides: bool = False
) -> Iterator[None]:
    """Turn what the block raises into one line that says what to mend.

    Args:
        say: Returns the error to raise in place of the one given.
        passes: What passes as it is.
        hides: The block's own error is not shown with the line: its text may hold a prompt or a key.
    """
    try:
        yield
    except passes:
        raise
    except Exception as error:
        found = say(error)
        raise found from (None if hides else error)


def answered(ask: Callable[[], T], otherwise: T) -> T:
    """Return what ``ask`` returns, or ``otherwise`` if it raises."""
    try:
        return ask()
    except Exception:
        return otherwise
