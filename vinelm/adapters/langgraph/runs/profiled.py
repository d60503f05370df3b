"""Runs of a profile: which are in progress in this process, and the threads that their application starts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from threading import Lock, Thread
from typing import Any

PROFILED: list[object] = []
"""One object for each ``with profiled_unit()`` block in progress in this process."""
_LOCK = Lock()
_plain: tuple[Callable[..., Future[Any]], Callable[[Thread], None]] = ThreadPoolExecutor.submit, Thread.start
"""The methods that were there when the first of these blocks began: another library may have replaced Python's."""


class profiled_unit:  # noqa: N801 - used as a with-block
    """A context manager for one run of a profile.

    Inside the block, chat model calls that do not belong to the profiled run are refused, since their cost could not be
    recorded. Threads that the application starts meanwhile, and calls that it gives to a pool of threads, get a copy of the
    context variables of the code that starts them, so that their calls belong to its run.
    """

    def __enter__(self) -> None:
        global _plain  # noqa: PLW0603 - as the methods that it holds are of the whole process
        with _LOCK:
            if not PROFILED:
                _plain = ThreadPoolExecutor.submit, Thread.start
                ThreadPoolExecutor.submit, Thread.start = _submit, _start  # type: ignore[method-assign, assignment]
            PROFILED.append(self)

    def __exit__(self, *_: object) -> None:
        with _LOCK:
            PROFILED.remove(self)
            if not PROFILED:
                ThreadPoolExecutor.submit, Thread.start = _plain  # type: ignore[method-assign, assignment]


def _submit(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    return _plain[0](self, copy_context().run, fn, *args, **kwargs)


def _start(self: Thread) -> None:
    if not self.name.startswith("vinelm"):
        context, run = copy_context(), self.run
        self.run = lambda: context.run(run)  # type: ignore[method-assign]
    _plain[1](self)
