"""The process that runs the tests with pytest. The module that they import is a stand-in: each call goes to the process that
runs the generated code, and only data comes back.

Runs inside a sandbox of its own, without the generated code. Standard input is the channel to the other process (both ways),
standard output takes one frame: the verdict.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

from vinelm.workflows.examples.coding.limits import impose
from vinelm.workflows.examples.coding.wire import NotPlainError, plain, receive, send, update, value_of

NAME = "solution"


def main(limits: dict[str, int], packages: list[str], folder: str) -> None:
    """Run the tests in ``folder`` and send ``{"started"}``, then ``{"passed", "problems"}`` or ``{"ended"}``."""
    channel, report = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    impose(limits)
    tests = receive(channel)
    if receive(channel) is None or tests is None:
        return
    send(report, {"started": True})
    sys.path.extend(packages)
    path = os.path.join(folder, "test_solution.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(tests["tests"])
    sys.modules[NAME] = _StandIn(channel, lambda: _end(report, {"ended": True}))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest

    os.dup2(nothing, 2)  # what failed so far was said to the parent
    notes = _Notes()
    options = ["-x", "--tb=short", "--capture=sys", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--rootdir", folder]
    code = pytest.main([*options, "-c", os.devnull, path], plugins=[notes])
    if code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        notes.problems.append(f"pytest itself failed (exit code {int(code)})")
    _end(report, {"passed": notes.passed, "problems": [problem[:2000].replace(f"{folder}/", "") for problem in notes.problems]})


def _end(report: int, verdict: dict[str, Any]) -> NoReturn:
    send(report, verdict)
    os._exit(0)


class _Notes:
    """A pytest plugin: how many tests passed, and the first lines of each failure."""

    def __init__(self) -> None:
        self.passed = 0
        self.problems: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.passed += report.when == "call" and report.passed
        self.pytest_collectreport(report)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            lines = [line[1:].strip() for line in str(report.longrepr).splitlines() if line.startswith("E ")]
            where = report.nodeid.rpartition("::")[2]
            self.problems.append(where + ": " + " / ".join(lines[:4] or ["failed"]))


class _StandIn(types.ModuleType):
    """The module under test, as the tests see it."""

    def __init__(self, channel: int, ended: Callable[[], NoReturn]) -> None:
        super().__init__(NAME)
        self.__file__ = f"{NAME}.py"
        self._channel, self._ended = channel, ended
        self._failure: dict[str, Any] | None = None
        self._has_loaded = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self._has_loaded:  # the first answer is about the code itself
            self._has_loaded = True
            self._failure = self._next()
        if "error" in (self._failure or {}):
            _raise(self._failure or {})
        answer = self._ask({"name": name})
        if "missing" in answer:
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}")
        if "callable" in answer:
            return self._function(name)
        return _result(answer)

    def _function(self, name: str) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            answer = self._ask({"name": name, "args": plain(args), "kwargs": plain(kwargs)})
            result = _result(answer)
            for old, new in zip(args, value_of(answer.get("args", ["tuple", []])), strict=False):
                update(old, new)
            return result

        function.__name__ = function.__qualname__ = name
        return function

    def _ask(self, frame: dict[str, Any]) -> dict[str, Any]:
        try:
            send(self._channel, frame)
        except OSError:
            self._ended()
        return self._next()

    def _next(self) -> dict[str, Any]:
        answer = receive(self._channel)
        if answer is None:
            self._ended()
        return answer


def _result(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        _raise(answer)
    if "value" not in answer:
        raise NotPlainError("a malformed answer")
    return value_of(answer["value"])


def _raise(answer: dict[str, Any]) -> NoReturn:
    """Raise the exception that the code raised: of the same built-in type, or of a subclass with its name."""
    kind = getattr(builtins, str(answer["error"]), None)
    text, name = str(answer.get("text", "")), str(answer.get("name", ""))
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        raise RuntimeError(f"the code raised {name}: {text}")
    if issubclass(kind, SyntaxError):
        line, offset, source = [*(answer.get("place") or ()), 0, 0, ""][:3]
        raise kind(text, (f"{NAME}.py", int(line or 0), int(offset or 0), str(source)))
    if issubclass(kind, UnicodeError | BaseExceptionGroup):  # they need more than a message
        kind = ValueError if issubclass(kind, ValueError) else Exception
    raise (kind if kind.__name__ == name or not name.isidentifier() else type(name, (kind,), {}))(text)
