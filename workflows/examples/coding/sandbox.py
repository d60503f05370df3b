"""Run generated code against its tests, inside a boundary (:mod:`vinelm.workflows.examples.coding.boundary`).

Two processes, each in a sandbox of its own. One holds the generated code and answers calls: arguments in, result out, as data.
The other holds the tests and compares. What was expected never enters the first, and nothing of the first runs in the second,
so a pass takes right answers: printing, exiting, patching pytest or returning an object that equals everything decides nothing.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from typing import Any

from vinelm.errors import ConfigError
from vinelm.workflows.examples.coding import boundary, limits, wire

TIMEOUT_S = 20.0
REPORT_CHARS = 1500
MAX_CODE_CHARS = 20_000
_MAX_VERDICT_BYTES = 1 << 20


@lru_cache(maxsize=4096)
def run_pytest(code: str, tests: str, timeout_s: float = TIMEOUT_S) -> tuple[bool, str]:
    """Return whether all ``tests`` pass with ``code`` as their module ``solution``, and a report of the first failure.

    The tests are pytest code. They can call the module's functions with plain data (numbers, texts, bytes, lists, tuples, sets,
    dicts) and see what they return, raise, and change in their arguments. Results are cached per process; reports do not depend
    on the machine. Starts two processes, which are gone when it returns.

    Raises:
        ConfigError: there is no sandbox on this machine, and none was waived.
        ModuleNotFoundError: pytest is not installed.
    """
    if max(len(code), len(tests)) > MAX_CODE_CHARS:
        return False, f"the code is longer than {MAX_CODE_CHARS} characters"
    deadline = time.monotonic() + timeout_s
    with _processes(code, tests, timeout_s) as (solution, tester):
        said = _read(tester, deadline)
        if said is None:
            return False, f"the tests took longer than {timeout_s:g} s"
        frames = wire.frames(said)
        if not frames:
            raise ConfigError(boundary.failed(_output(solution) + _output(tester)), code="sandbox-missing")
    return _verdict(frames[1] if len(frames) > 1 else {"problems": ["the tests ended without a verdict"], "passed": 0})


def _verdict(verdict: dict[str, Any]) -> tuple[bool, str]:
    if "ended" in verdict:
        return False, "the code ended the process before its tests were through"
    passed, problems = verdict["passed"], verdict["problems"]
    if problems:
        return False, "\n".join(problems)[:REPORT_CHARS]
    return passed > 0, f"{passed} passed" if passed else "no test was found"


@contextmanager
def _processes(code: str, tests: str, timeout_s: float) -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """Start the process with the code and the one with the tests, joined by a socket; both are killed at the end."""
    packages = boundary.pytest_packages()
    most = limits.limits(timeout_s)
    with ExitStack() as stack:
        left, right = (stack.enter_context(end) for end in socket.socketpair())
        wire.send(left.fileno(), {"code": code})  # both fit into the buffers of a socket
        wire.send(right.fileno(), {"tests": tests})
        solution = stack.enter_context(_started("solution", [most], [], right, right.fileno()))
        folder, seen = "/tmp", ["/packages"]
        if boundary.is_unsafe():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vinelm-tests-"))
            seen = sorted({str(path.parent) for path in packages})
        tester = stack.enter_context(_started("tests", [most, seen, folder], packages, left, subprocess.PIPE))
        left.close()
        right.close()
        yield solution, tester


@contextmanager
def _started(
    role: str, arguments: Sequence[Any], packages: Sequence[Any], channel: socket.socket, output: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process whose standard input is ``channel``; kill it and everything that it started at the end."""
    text, is_unsafe = boundary.program(role, arguments), boundary.is_unsafe()
    with ExitStack() as stack:
        if is_unsafe:
            command = boundary.python_command(text, boundary.interpreter())
            settings: dict[str, Any] = {"start_new_session": True}
        else:
            descriptor = stack.enter_context(boundary.filter_descriptor())
            command = boundary.sandboxed(text, packages, descriptor)
            settings = {"pass_fds": (descriptor,), **boundary.as_nobody(packages)}
        settings |= {"stdin": channel, "stdout": output, "stderr": subprocess.PIPE, "env": {}, "cwd": "/"}
        process = subprocess.Popen(command, **settings)
    with process:
        try:
            yield process
        finally:
            _kill(process, has_group=is_unsafe)


def _kill(process: subprocess.Popen[bytes], *, has_group: bool) -> None:
    """Kill a process; the death of bubblewrap ends everything in its sandbox."""
    if has_group:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def _read(process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    """Return what a process writes until it hangs up, up to a size; None if the deadline passes first."""
    assert process.stdout is not None
    parts, size = [], 0
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while size <= _MAX_VERDICT_BYTES:
            if not selector.select(max(deadline - time.monotonic(), 0.0)):
                return None
            part = os.read(process.stdout.fileno(), 65536)
            if not part:
                break
            parts.append(part)
            size += len(part)
    return b"".join(parts)


def _output(process: subprocess.Popen[bytes]) -> bytes:
    process.kill()
    return process.communicate()[1][-4096:]
