"""The process that :mod:`vinelm.workflows.limited.sessions` starts: it forks one limited process per session.

The process is started with an empty environment, and ends when all its clients are gone.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, NoReturn, cast

GRACE_S = 0.5
"""Seconds after its time limit at which a process is killed, if it has not ended itself."""


def serve_sessions(
    descriptor: int,
    answer: Callable[[bytes, BinaryIO], None],
    *,
    space_bytes: int,
    data_bytes: int | None = None,
    ended: Callable[[], None] = lambda: None,
) -> None:
    """Fork a session (a limited process) for each socket that arrives, until the application has ended.

    Args:
        descriptor: the descriptor of the socket over which sessions are requested.
        answer: called in a session for each line that arrives over its socket, with the line and a stream. It must write the
            answer to the stream, and may read more from the stream.
        space_bytes: the bytes that a session may map in addition to the process's mappings at its start.
        data_bytes: the bytes of data that a session and each of its children may have; None sets no such limit.
        ended: called in a session whose socket is closed, before its process ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the application, which ends this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a session
    control = socket.socket(fileno=descriptor)
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return
        session = socket.socket(fileno=descriptors[0])
        if os.fork() == 0:
            control.close()
            _serve(session, answer, space_bytes, data_bytes, ended)
        session.close()


def wait_for_children() -> None:
    """Allow this session to wait for child processes that it starts.

    By default a session ignores how its children end, so that their exit codes are lost.
    """
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Kill this process, whatever it runs, if the block lasts longer than ``seconds`` plus :data:`GRACE_S`."""
    end_after(seconds + GRACE_S)
    yield
    end_after(0.0)


def end_after(seconds: float) -> None:
    """Kill this process after this many seconds, whatever it runs; 0 cancels an earlier call."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _serve(
    session: socket.socket,
    answer: Callable[[bytes, BinaryIO], None],
    space_bytes: int,
    data_bytes: int | None,
    ended: Callable[[], None],
) -> NoReturn:
    with suppress(OSError):
        _limit(space_bytes, data_bytes)
        session.sendall(b"ready\n")
        with session.makefile("rwb") as stream:
            for line in stream:
                answer(line, cast("BinaryIO", stream))
    ended()
    os._exit(0)


def _limit(space_bytes: int, data_bytes: int | None) -> None:
    import resource

    limits = {resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    if data_bytes is not None:
        limits[resource.RLIMIT_DATA] = data_bytes
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        limits[resource.RLIMIT_AS] = int(file.read().split()[0]) * resource.getpagesize() + space_bytes
    for kind, wanted in limits.items():
        _, hard = resource.getrlimit(kind)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (most, most))
