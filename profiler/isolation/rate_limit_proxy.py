"""Rate limits over all children: a call in a child waits at the gate of the run that started it.

For each attempt a child makes a socket pair and sends one end over, with its unit, its model and the tokens. The run's side
answers with one byte when the gate lets it through, and hears what the attempt used when it is over. The kernel closes a dead
child's end, so whatever becomes of it, its place is free again.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

from vinelm.protocols import RateLimiter

_LONGEST = 4096  # bytes of a message; a model's name is in it


class RateLimitProxy:
    """The run's side; ``theirs`` is what children inherit. One daemon thread per attempt that waits or runs.

    ``gates`` are the limits by model; ``waiting`` is entered with the unit's number while one of its attempts waits.
    """

    def __init__(self, gates: Mapping[str, RateLimiter], waiting: Callable[[int], AbstractContextManager[None]]) -> None:
        self._gates, self._waiting = gates, waiting
        self._mine, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        threading.Thread(target=self._serve, daemon=True, name="vinelm gates").start()

    def close(self) -> None:
        """Let nobody through any more."""
        with suppress(OSError):
            self._mine.shutdown(socket.SHUT_RDWR)
        self._mine.close()
        self.theirs.close()

    def _serve(self) -> None:
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._mine, _LONGEST, 1)
            except OSError:
                return
            if not data:
                return
            line = socket.socket(fileno=descriptors[0])
            threading.Thread(target=self._admit, args=(line, json.loads(data)), daemon=True, name="vinelm gate").start()

    def _admit(self, line: socket.socket, asked: Mapping[str, str | int]) -> None:
        gate = self._gates[str(asked["model"])]
        with line, suppress(OSError), ExitStack() as place:
            with self._waiting(int(asked["unit"])):
                ticket = place.enter_context(gate.admit(int(asked["tokens"]), lambda seconds: _sleep(line, seconds)))
            line.sendall(b"\n")
            used = line.recv(_LONGEST)
            if used:
                ticket.settle(int(used))


def _sleep(line: socket.socket, seconds: float) -> None:
    """That long; ``ConnectionError`` as soon as the other side is gone."""
    line.settimeout(seconds)
    try:
        line.recv(1)
    except TimeoutError:
        line.settimeout(None)
        return
    raise ConnectionError("the child is gone")


@dataclass(slots=True)
class _Ticket:
    """What the attempt used, to be told when it is over."""

    line: socket.socket
    tokens: int | None = field(default=None)

    def settle(self, tokens: int) -> None:
        """See :class:`vinelm.protocols.RatePermit`."""
        self.tokens = tokens

    def close(self) -> None:
        """The attempt is over."""
        with self.line, suppress(OSError):
            if self.tokens is not None:
                self.line.sendall(str(self.tokens).encode())


class ProxiedRateLimiter:
    """The child's side of one model's gate (:class:`vinelm.protocols.RateLimiter`), for any of its threads and event loops.

    ``ConnectionError`` if the run is gone.
    """

    def __init__(self, theirs: socket.socket, unit: int, model: str) -> None:
        self._theirs = theirs
        self._asked = {"unit": unit, "model": model}

    @contextmanager
    def admit(self, tokens: int, sleep: Callable[[float], None]) -> Iterator[_Ticket]:
        """See :class:`vinelm.protocols.RateLimiter`; ``sleep`` is not needed, the run's side waits."""
        ticket = self._ask(tokens)
        try:
            if not ticket.line.recv(1):
                raise ConnectionError("the run that holds the rate limits is gone")
            yield ticket
        finally:
            ticket.close()

    @asynccontextmanager
    async def aadmit(self, tokens: int, sleep: Callable[[float], Awaitable[None]]) -> AsyncIterator[_Ticket]:
        """The same for a coroutine."""
        ticket = self._ask(tokens)
        try:
            ticket.line.setblocking(False)
            if not await asyncio.get_running_loop().sock_recv(ticket.line, 1):
                raise ConnectionError("the run that holds the rate limits is gone")
            ticket.line.setblocking(True)
            yield ticket
        finally:
            ticket.close()

    def _ask(self, tokens: int) -> _Ticket:
        mine, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._theirs, [json.dumps({**self._asked, "tokens": tokens}).encode()], [theirs.fileno()])
            except OSError:
                mine.close()
                raise
        return _Ticket(mine)
