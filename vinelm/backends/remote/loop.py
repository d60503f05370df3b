"""Calls of threads on one event loop of this process: a deadline and an interruption end them at once.

An SDK's own limits bound each read of a socket, so that a server which sends a byte now and then is never timed out. A task can
be cancelled wherever it waits.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import aclosing
from typing import Any, TypeVar

T = TypeVar("T")
_LOCK = threading.Lock()
_LOOP: asyncio.AbstractEventLoop | None = None


def _loop() -> asyncio.AbstractEventLoop:
    """The loop, started with the first call: a process that only imports or forks has no thread of ours."""
    global _LOOP
    with _LOCK:
        if _LOOP is None:
            _LOOP = asyncio.new_event_loop()
            threading.Thread(target=_LOOP.run_forever, name="vinelm model calls", daemon=True).start()
        return _LOOP


def _forget() -> None:
    """In a forked child the thread is gone, and nobody will ever run its loop."""
    global _LOOP, _LOCK
    _LOOP, _LOCK = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def waited(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop, in the caller's context, and wait for it; an interruption of the wait cancels it."""
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def iterated(pieces: AsyncGenerator[T]) -> Generator[T]:
    """Yield what an asynchronous generator yields on the loop; closing this one cancels it.

    The pieces go through a queue: one waiting thread is woken for several pieces that come together.
    """
    arrived: queue.SimpleQueue[tuple[T | None, BaseException | None, bool]] = queue.SimpleQueue()

    async def run() -> None:
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    arrived.put((piece, None, False))
        except BaseException as error:
            arrived.put((None, error, True))
            if not isinstance(error, Exception):
                raise
        else:
            arrived.put((None, None, True))

    future = asyncio.run_coroutine_threadsafe(run(), _loop())
    try:
        while True:
            piece, error, is_last = arrived.get()
            if error is not None:
                raise error
            if is_last:
                return
            yield piece  # type: ignore[misc]
    finally:
        future.cancel()
