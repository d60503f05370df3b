"""The process that runs generated code: it calls its functions with the arguments that it is given, and answers with what they
return. It never learns what was expected.

Runs inside the sandbox with nothing but the standard library. Its standard input and output are the channel.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
from typing import Any

from vinelm.workflows.examples.coding.limits import impose
from vinelm.workflows.examples.coding.wire import NotPlainError, plain, receive, send, value_of

NAME = "solution"
_MESSAGE_CHARS = 2000


def main(limits: dict[str, int]) -> None:
    """Serve calls until the other side hangs up."""
    reading, writing = _private(0), _private(1)
    impose(limits)
    send(writing, {"ready": True})
    frame = receive(reading)
    if frame is None:
        return
    module = types.ModuleType(NAME)
    sys.modules[NAME] = module
    try:
        exec(compile(frame["code"], f"{NAME}.py", "exec"), module.__dict__)
        answer: dict[str, Any] = {"loaded": True}
    except BaseException as error:
        answer = _described(error)
    while True:
        _say(writing, answer)
        frame = receive(reading)
        if frame is None:
            return
        answer = _answer(module, frame)


def _private(descriptor: int) -> int:
    """Move the channel to another descriptor, so that what the code prints goes nowhere and what it reads is empty."""
    mine = os.dup(descriptor)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, descriptor)
    os.close(nothing)
    return mine


def _answer(module: types.ModuleType, frame: dict[str, Any]) -> dict[str, Any]:
    name = frame["name"]
    if name not in module.__dict__:
        return {"missing": True}
    value = module.__dict__[name]
    try:
        if "args" not in frame:
            return {"callable": True} if callable(value) else {"value": plain(value)}
        args, kwargs = value_of(frame["args"]), value_of(frame["kwargs"])
        result = plain(value(*args, **kwargs))
        return {"value": result, "args": plain(args)}
    except BaseException as error:
        return _described(error)


def _described(error: BaseException) -> dict[str, Any]:
    """Type and message of an exception; those of a syntax error with its place."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind]
    text = f"it returned {error}" if isinstance(error, NotPlainError) else _message(error)
    described: dict[str, Any] = {"error": kinds[0] if kinds else "Exception", "name": type(error).__name__, "text": text}
    if isinstance(error, SyntaxError):
        line = str(error.text or "")[:_MESSAGE_CHARS]
        described |= {"text": str(error.msg)[:_MESSAGE_CHARS], "place": [error.lineno, error.offset, line]}
    return described


def _message(error: BaseException) -> str:
    try:
        return str(error)[:_MESSAGE_CHARS]
    except BaseException:  # its __str__ is code under test as well
        return ""


def _say(writing: int, answer: dict[str, Any]) -> None:
    try:
        send(writing, answer)
    except NotPlainError as error:
        send(writing, {"error": "ValueError", "name": "ValueError", "text": f"it returned {error}"})
