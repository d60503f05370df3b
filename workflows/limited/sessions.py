"""Sessions with limited processes: each application starts one small process, which forks one process per session.

A session is a socket to such a process, used for one question at a time and then by the next caller. Children that an
application forks (the profiler's workers) share the forking process and open their own sessions. The forking process ends when
the application and all of these children have ended.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

MAX_IDLE = 8
_START = "import sys; sys.path[:] = {path!r}; from {program} import main; main({descriptor})"
_HELLO = b"ready\n"


def is_supported() -> bool:
    """Return whether this platform can fork processes and pass sockets between them."""
    return hasattr(os, "fork") and hasattr(socket, "send_fds")


class Sessions:
    """Hands out sessions with limited processes that all run the same program. Thread-safe. All sessions end with this process.

    Args:
        program: module whose ``main(descriptor)`` calls :func:`~vinelm.workflows.limited.serve_sessions`.
        purpose: what the program's process does, for an error message.
    """

    def __init__(self, program: str, purpose: str) -> None:
        self._program, self._purpose = program, purpose
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    @contextmanager
    def one(self) -> Iterator[socket.socket]:
        """Yield the socket of a session, for use inside the block only. Afterwards another caller may get the same session.

        A session whose socket the caller has closed is not reused.

        Raises:
            RuntimeError: the process cannot be started.
        """
        session = self._idle_one() or self._opened()
        try:
            yield session
        finally:
            with self._lock:
                is_kept = session.fileno() >= 0 and len(self._idle) < MAX_IDLE
                if is_kept:
                    self._idle.append(session)
            if not is_kept:
                session.close()

    def _idle_one(self) -> socket.socket | None:
        while True:
            with self._lock:
                session = self._idle.pop() if self._idle else None
            if session is None or _is_alive(session):
                return session
            session.close()

    def _opened(self) -> socket.socket:
        for _ in range(2):  # the process may have been killed since the last time
            with self._lock:
                session = self._connected()
            if session is not None:
                return session
        raise RuntimeError(
            f"cannot start the process that {self._purpose}: is there memory, and may this process start others?"
        )

    def _connected(self) -> socket.socket | None:
        if self._control is None:
            self._start()
        assert self._control is not None
        mine, other = socket.socketpair()
        with other, suppress(OSError):
            socket.send_fds(self._control, [b"+"], [other.fileno()])
        mine.settimeout(60.0)
        with suppress(OSError):
            if mine.recv(len(_HELLO), socket.MSG_WAITALL) == _HELLO:
                return mine
        mine.close()
        self._stop()
        return None

    def _start(self) -> None:
        self._control, other = socket.socketpair()
        program = _START.format(path=sys.path, program=self._program, descriptor=other.fileno())
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", program], pass_fds=(other.fileno(),), stdin=subprocess.DEVNULL, env={}
            )

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        self._control = self._process = None

    def close(self) -> None:
        """End the forking process and every idle session; the next use of :meth:`one` starts another process."""
        with self._lock:
            for session in self._idle:
                session.close()
            self._idle.clear()
            self._stop()

    def _after_fork(self) -> None:
        """Reset this object in a forked child: keep the connection to the forking process, drop the parent's idle sessions."""
        self._lock = threading.Lock()
        for session in self._idle:
            session.close()
        self._idle = []
        if self._process is not None:
            self._process.returncode = 0  # not this process's child
            self._process = None


def _is_alive(session: socket.socket) -> bool:
    """Return whether an idle session's process is alive.

    This is so if nothing can be read from the socket: an idle session sends nothing until it is closed.
    """
    session.setblocking(False)
    try:
        session.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
