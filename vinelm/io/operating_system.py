"""Hides differences between operating systems: processes, signals, locks.

All such calls of VineLM are here or in ``vinelm.profiler.isolation``, which is used only if :func:`can_fork` is true.
Importing this module works on every system.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, NoReturn

fcntl: ModuleType | None
resource: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
try:
    import resource
except ImportError:  # Windows
    resource = None

_NEEDED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (os, ("fork", "waitpid", "killpg", "setpgid")),
    (socket, ("AF_UNIX", "send_fds", "recv_fds")),
    (signal, ("SIGKILL", "SIGCHLD", "set_wakeup_fd")),
    (select, ("poll",)),
)
_PR_SET_PDEATHSIG = 1

ENDING: tuple[int, ...] = tuple(int(getattr(signal, name)) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask a process to end: Ctrl-C, SIGTERM, and the end of the terminal, as far as the system has them."""


def can_fork() -> bool:
    """Return whether runs can be executed in forked processes. True on Linux and macOS, False on Windows."""
    return resource is not None and all(hasattr(module, name) for module, names in _NEEDED for name in names)


def is_running(pid: int) -> bool:
    """Return whether a process with this id exists. On Windows the result is always True, because checking would end
    the process there.
    """
    if sys.platform == "win32" or not hasattr(os, "killpg"):
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def lock(descriptor: int, *, is_shared: bool = False) -> bool:
    """Lock an open file until it is closed, without waiting. Return True, or False if another process holds a
    conflicting lock.

    A lock with ``is_shared`` conflicts only with exclusive locks; an exclusive lock conflicts with every other lock.
    Windows lacks such locks: nothing is locked there, and the result is True.

    Raises:
        OSError: the file cannot be locked at all.
    """
    if fcntl is None:
        return True
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def apart(inherited: int) -> dict[str, Any]:
    """Return keyword arguments of ``subprocess.Popen`` with which the child inherits an open file and ignores Ctrl-C on
    the terminal.

    Args:
        inherited: descriptor of the inherited file.

    Returns:
        ``pass_fds`` and ``start_new_session``. Empty on Windows, which supports neither argument.
    """
    return {"pass_fds": (inherited,), "start_new_session": True} if os.name == "posix" else {}


def die_with_parent() -> None:
    """On Linux, let the kernel kill this process when its parent dies. Does nothing on other systems, where a process
    learns of its parent's death only from a closed socket.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def ended_after(seconds: float, error: Callable[[], BaseException]) -> Iterator[None]:
    """Raise the result of ``error`` inside the ``with`` block if the block takes more than ``seconds``. If the block
    catches it, raise it again every second.

    Works only in the main thread and on systems with timers (not Windows). Elsewhere the time is not limited. A block that
    waits in C code is not limited either, because Python does not see signals there.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> NoReturn:
        raise error()

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGALRM) is stop:  # otherwise the block has set its own timer by now
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)


def limit_process(memory_mb: int) -> None:
    """Disable core dumps, and limit this process's memory to what it has now plus ``memory_mb`` MiB. With 0, memory is
    not limited. The limit works only on Linux.
    """
    if resource is None:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_mb and sys.platform == "linux":  # elsewhere the address space does not measure memory
        with open("/proc/self/statm", encoding="ascii") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
        limit = mapped + memory_mb * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def kill_group(pid: int, number: int) -> None:
    """Send the signal ``number`` to the process group ``pid``; do nothing if the group no longer exists."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def reaped(pid: int) -> int | None:
    """Return the exit code of a child process that leads a process group, or None while it runs. A negative code is the number
    of the signal that ended it.

    Also kills processes that the child left running in its group. If the system has ``waitid``, they are killed before
    the child's id can be reused.
    """
    if hasattr(os, "waitid"):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        kill_group(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    else:  # macOS
        found, status = os.waitpid(pid, os.WNOHANG)
        if not found:
            return None
        kill_group(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)
