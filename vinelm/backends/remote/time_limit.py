"""A wall-clock limit for a coroutine that waits for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.retry import AttemptFailed


async def within(seconds: float, answer: AsyncGenerator[Delta]) -> AsyncGenerator[Delta]:
    """Yield the pieces of an answer; :class:`AttemptFailed` (timeout) if they have no end after ``seconds``.

    Waiting is cancelled, which closes the connection. The answer is closed at the end.
    """
    ends_at = asyncio.get_running_loop().time() + seconds
    async with aclosing(answer):
        while True:
            try:
                async with asyncio.timeout_at(ends_at):
                    delta = await anext(answer, None)
            except TimeoutError:
                break
            if delta is None:
                return
            yield delta
    raise AttemptFailed("timeout", f"no end after {seconds:g} s")
