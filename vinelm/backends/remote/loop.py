"""Runs synchronous calls whose waits cannot be ended in the caller's thread: on an event loop, or in separate threads.

These are calls through the application's own chat model classes or HTTP clients, and through packages whose HTTP client
cannot be made to end its waits. See :mod:`~vinelm.backends.remote.deadlines` for other calls. A task on the event loop can be
cancelled wherever it waits; a thread can only be abandoned.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing, suppress
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from vinelm.backends.remote.retry import AttemptFailed
from vinelm.threads import beside, started

T = TypeVar("T")
_LOCK = threading.Lock()
_LOOP: asyncio.AbstractEventLoop | None = None


def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop for synchronous calls. The first call starts it, so that a process without such calls has no extra
    thread.
    """
    global _LOOP  # noqa: PLW0603 - one for the process
    with _LOCK:
        if _LOOP is None:
            _LOOP = asyncio.new_event_loop()
            started(_LOOP.run_forever, "vinelm model calls")
        return _LOOP


def shared_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop for synchronous calls; None if it has not been started."""
    return _LOOP


def _forget() -> None:
    """Forget the event loop in a forked child process, because the loop's thread exists only in the parent."""
    global _LOOP, _LOCK
    _LOOP, _LOCK = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def iterated(pieces: AsyncGenerator[T]) -> Generator[T]:
    """Run the asynchronous generator ``pieces`` on the event loop, and yield its items. Closing the returned generator cancels
    ``pieces``.

    The items go through a queue, so that the waiting thread wakes once for several items that come together.
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


def threaded(pieces: Callable[[], Generator[T]], timeout_s: float) -> Generator[T]:
    """Run a synchronous generator in a separate thread and yield its items.

    Raise :class:`AttemptFailed` (timeout) ``timeout_s`` seconds after the start. A thread cannot be stopped, so it then runs
    on: it ends with the next item or at the socket's own time limit, and that item is dropped. This is for chat models without
    an asynchronous client.
    """
    arrived: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
    wanted, leave = _in_a_thread(pieces, arrived.put)
    ends_at = time.monotonic() + timeout_s
    try:
        while True:
            wanted()
            try:
                piece, error = arrived.get(timeout=max(ends_at - time.monotonic(), 0.0))
            except queue.Empty:
                raise late(timeout_s) from None
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield piece  # type: ignore[misc]
    finally:
        leave()


async def athreaded(pieces: Callable[[], Generator[T]], timeout_s: float) -> AsyncGenerator[T]:
    """Run a synchronous generator in a separate thread and yield its items, like :func:`threaded`, without blocking the event
    loop.

    Avoids the loop's own thread pool, because closing the loop waits for it.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[tuple[T | None, BaseException | None]] = asyncio.Queue()

    def put(one: tuple[T | None, BaseException | None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing waits any more
            loop.call_soon_threadsafe(arrived.put_nowait, one)

    wanted, leave = _in_a_thread(pieces, put)
    ends_at = loop.time() + timeout_s
    try:
        while True:
            wanted()
            try:
                async with asyncio.timeout_at(ends_at):
                    piece, error = await arrived.get()
            except TimeoutError:
                raise late(timeout_s) from None
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield piece  # type: ignore[misc]
    finally:
        leave()


def late(timeout_s: float, *, may_be_billed: bool = True) -> AttemptFailed:
    """Return the failure of an attempt that timed out after ``timeout_s`` seconds."""
    return AttemptFailed("timeout", f"no end after {timeout_s:g} s", may_be_billed=may_be_billed)


def _in_a_thread(
    pieces: Callable[[], Generator[T]], put: Callable[[tuple[T | None, BaseException | None]], None]
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Run a generator in a separate thread, in the caller's context. It produces an item only when one is asked for.

    Args:
        pieces: starts the generator.
        put: called with (item, None) for each item, and with (None, exception) at the end; ``StopIteration`` means that the
            generator is exhausted.

    Returns:
        A function that asks for the next item, and a function that makes the thread stop.
    """
    wanted, is_left = threading.Semaphore(0), threading.Event()

    def run() -> None:
        try:
            with closing(pieces()) as made:
                while wanted.acquire() and not is_left.is_set():
                    put((next(made), None))
        except BaseException as error:  # StopIteration too: the generator's end
            put((None, error))

    def leave() -> None:
        is_left.set()
        wanted.release()

    beside(partial(copy_context().run, run), name="vinelm model call")
    return wanted.release, leave
