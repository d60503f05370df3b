"""Run generated code against its tests, inside a boundary (:mod:`examples.coding.boundary`).

A process in a sandbox holds the code and answers calls: arguments in, result out, as data. This process compares. What was
expected never enters the sandbox, and nothing of the code runs outside, so a pass takes right answers: printing, exiting, or
returning an object that equals everything decides nothing.
"""

from __future__ import annotations

import builtins
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NoReturn

from examples.coding import boundary
from examples.coding.solution_process import MAX_LINE_BYTES, NotPlainError, plain, value_of
from vinelm.errors import ConfigError

TIMEOUT_S = 20.0
REPORT_CHARS = 1500
MAX_CODE_CHARS = 20_000


class _CodeEndedError(Exception):
    """The process with the code is gone, or says something that is not an answer."""


@lru_cache(maxsize=4096)
def run_tests(code: str, tests: str, timeout_s: float = TIMEOUT_S) -> tuple[bool, str]:
    """Return whether all ``tests`` pass with ``code``, and a report of the first failure.

    The tests are Python expressions, one a line, that are to be true. They can call the code's functions with plain data
    (numbers, texts, bytes, lists, tuples, sets, dicts) and see what they return, and change in their arguments;
    ``raises(ERROR, function, *arguments)`` is true if that call raises the error. Results are cached per process; reports do
    not depend on the machine. Starts a process, which is gone when it returns.

    Raises:
        ConfigError: there is no sandbox on this machine, and none was waived.
    """
    if max(len(code), len(tests)) > MAX_CODE_CHARS:
        return False, f"the code is longer than {MAX_CODE_CHARS} characters"
    checks = [line for line in tests.splitlines() if line.strip()]
    try:
        with _solution(timeout_s) as solution:
            problem = _first_problem(checks, solution, code)
    except TimeoutError:
        return False, f"the tests took longer than {timeout_s:g} s"
    except _CodeEndedError:
        return False, "the code ended the process before its tests were through"
    if problem is not None:
        return False, problem[:REPORT_CHARS]
    return bool(checks), f"{len(checks)} passed" if checks else "no test was found"


def _first_problem(checks: Sequence[str], solution: _Solution, code: str) -> str | None:
    """The report of the first check that does not hold."""
    loaded = solution.ask({"code": code})
    if "names" not in loaded:
        return f"{loaded.get('error')}: {loaded.get('text')}"
    names = {**solution.names(loaded["names"]), **vars(builtins), "__builtins__": builtins, "raises": raises}
    for check in checks:
        solution.calls.clear()
        try:
            if not eval(check, dict(names)):
                return f"{check} is not true" + "".join(f"; {call}" for call in solution.calls)
        except (TimeoutError, _CodeEndedError):
            raise
        except Exception as error:
            return f"{check}: {type(error).__name__}: {error}"
    return None


def raises(kind: type[Exception], function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """Return whether a call raises an error of that kind."""
    try:
        function(*args, **kwargs)
    except kind:
        return True
    return False


class _Solution:
    """The code in its process, as the tests see it."""

    def __init__(self, channel: socket.socket, deadline: float) -> None:
        self._channel, self._deadline = channel, deadline
        self._data = b""
        self.calls: list[str] = []
        """What the calls since the last check have returned."""

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a question."""
        try:
            self._channel.settimeout(self._left_s())
            self._channel.sendall(json.dumps(question).encode() + b"\n")
        except (BrokenPipeError, ConnectionError):
            raise _CodeEndedError from None
        return self.next()

    def next(self) -> dict[str, Any]:
        """Return the next answer."""
        while b"\n" not in self._data:
            self._channel.settimeout(self._left_s())
            try:
                part = self._channel.recv(1 << 16)
            except ConnectionError:
                part = b""
            if not part or len(self._data) > MAX_LINE_BYTES:
                raise _CodeEndedError
            self._data += part
        line, _, self._data = self._data.partition(b"\n")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise _CodeEndedError
        return answer

    def names(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the names that the code has: functions that call it, and values."""
        try:
            return {name: self._function(name) if value is None else value_of(value["value"]) for name, value in given.items()}
        except (AttributeError, KeyError, TypeError, NotPlainError):
            raise _CodeEndedError from None

    def _function(self, name: str) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            given = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())])
            answer = self.ask({"name": name, "args": plain(args), "kwargs": plain(kwargs)})
            if "value" not in answer:
                _raise(answer)
            result = value_of(answer["value"])
            self.calls.append(f"{name}({given}) returned {result!r}")
            for old, new in zip(args, value_of(answer.get("args", ["tuple", []])), strict=False):
                _update(old, new)
            return result

        return function

    def _left_s(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _update(old: Any, new: Any) -> None:
    """Give a list, set, dict or bytearray the content that it has after a call in the other process."""
    if type(old) is not type(new):
        return
    if isinstance(old, (list, bytearray)):
        old[:] = new
    elif isinstance(old, (dict, set)):
        old.clear()
        old.update(new)


def _raise(answer: Mapping[str, Any]) -> NoReturn:
    """Raise what the code raised: the closest built-in exception that needs only a message."""
    text = str(answer.get("text", ""))
    for name in answer.get("kinds", ()):
        kind = getattr(builtins, str(name), None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                error = kind(text)
            except TypeError:  # a message is not enough for some
                continue
            raise error
    raise RuntimeError(f"the code raised {answer.get('error')}: {text}")


@contextmanager
def _solution(timeout_s: float) -> Iterator[_Solution]:
    """Start a process for the code; it and everything that it started are killed at the end."""
    limits = {
        "RLIMIT_AS": 512 << 20,
        "RLIMIT_CPU": int(timeout_s) + 1,
        "RLIMIT_FSIZE": 1 << 20,
        "RLIMIT_NOFILE": 64,
        "RLIMIT_CORE": 0,
    }
    mine, other = socket.socketpair()
    with mine, other, boundary.started(limits, other) as process:
        other.close()
        solution = _Solution(mine, time.monotonic() + timeout_s)
        try:
            solution.next()
        except _CodeEndedError:
            process.kill()
            raise ConfigError(boundary.failed(process.communicate()[1][-4096:]), code="sandbox-missing") from None
        yield solution
