"""Imports that Ctrl-C does not interrupt: public names of a package on first use, and libraries of an extra.

If an import is interrupted, Python forgets the module itself, but keeps the modules that it had imported. A second try then
fails in numpy, in langsmith and in asyncio itself until the process is restarted. So Ctrl-C waits for the end of our imports.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import lazy_loader  # type: ignore[import-untyped]


class _Waiting:
    """A handler of Ctrl-C that only remembers that Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.last: tuple[int, FrameType | None] | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.last = number, frame


@contextmanager
def whole_import() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block, which should only contain imports. No effect outside of the main thread."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or isinstance(handler, _Waiting) or threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting = _Waiting()
    signal.signal(signal.SIGINT, waiting)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is waiting:  # else an imported module has set its own
            signal.signal(signal.SIGINT, handler)
        if waiting.last is not None:
            handler(*waiting.last)


def attach_stub(package: str, filename: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package whose public names are those in its ``__init__.pyi``.

    Each name is imported when it is first used.
    """
    found, names_of, names = lazy_loader.attach_stub(package, filename)

    def get(name: str) -> Any:
        with whole_import():
            return found(name)

    return get, names_of, names
