"""The process that runs generated code: it calls its functions with the arguments that it is given, and answers with what they
return. It never learns what was expected.

Runs inside the sandbox, so it imports nothing but the standard library. Standard input is the channel, both ways: one JSON
object a line. A value is rebuilt from its parts: whatever the code returns, what comes back is of a built-in type, whose
``==`` and ``repr`` are Python's own.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
import types
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

NAME = "solution"
MAX_LINE_BYTES = 1 << 20
MAX_ITEMS = 10_000
"""Items that are taken from an iterator which the code returns."""
_MESSAGE_CHARS = 2000
_DEPTH = 60
_BUILD: dict[str, Callable[[Any], Any]] = {
    "list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "iterator": iter, "dict": dict,
    "bytes": bytes, "bytearray": bytearray, "complex": lambda parts: complex(*parts),
}  # fmt: skip


class NotPlainError(Exception):
    """A value is not built of numbers, texts, bytes, lists, tuples, sets and dicts, or is malformed."""


def main(limits: dict[str, int]) -> None:
    """Load the code of the first line, then serve calls until the other side hangs up."""
    with os.fdopen(os.dup(0), "r+b", buffering=0) as channel:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):  # what the code prints goes nowhere, and what it reads is empty
            os.dup2(nothing, descriptor)
        _impose(limits)
        channel.write(_line({"ready": True}))
        module = sys.modules[NAME] = types.ModuleType(NAME)
        answer = _loaded(module, json.loads(channel.readline())["code"])
        while True:
            channel.write(_line(answer))
            question = channel.readline()
            if not question:
                return
            answer = _answer(module, json.loads(question))


def _impose(limits: dict[str, int]) -> None:
    """Limit this process for good, at most to what it may use now."""
    import resource

    for name, most in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))


def _line(frame: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(frame).encode() + b"\n"
    except (ValueError, RecursionError) as error:  # an int of more than 4,300 digits
        return _line(_described(NotPlainError(str(error))))
    return text if len(text) <= MAX_LINE_BYTES else _line(_described(NotPlainError(f"more than {MAX_LINE_BYTES} bytes")))


def _loaded(module: types.ModuleType, code: str) -> dict[str, Any]:
    """What the module has: null for functions, or the value."""
    try:
        exec(compile(code, f"{NAME}.py", "exec"), module.__dict__)
    except BaseException as error:
        return _described(error)
    names: dict[str, Any] = {}
    for name, value in module.__dict__.items():
        try:
            names[str(name)] = None if callable(value) else {"value": plain(value)}
        except BaseException:  # not a name that can be tested
            continue
    return {"names": names}


def _answer(module: types.ModuleType, call: dict[str, Any]) -> dict[str, Any]:
    try:
        args, kwargs = value_of(call["args"]), value_of(call["kwargs"])
        result = plain(module.__dict__[call["name"]](*args, **kwargs))
        return {"value": result, "args": plain(args)}
    except BaseException as error:
        return _described(error)


def _described(error: BaseException) -> dict[str, Any]:
    """Type and message of an exception, and its built-in types, the closest first."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind]
    if isinstance(error, NotPlainError):
        return {"error": "ValueError", "kinds": ["ValueError"], "text": f"it returned {error}"}
    try:
        text = str(error)[:_MESSAGE_CHARS]
    except BaseException:  # its __str__ is code under test as well
        text = ""
    return {"error": type(error).__name__, "kinds": kinds, "text": text}


def plain(value: Any, depth: int = _DEPTH) -> Any:
    """Return the value as JSON types. The exact types count: an object of a subclass is not plain."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind in (bytes, bytearray):
        return [kind.__name__, list(value)]
    if kind is complex:
        return ["complex", [value.real, value.imag]]
    if not depth:
        raise NotPlainError("a value that is nested too deep")
    if kind is dict:
        return ["dict", [["tuple", [plain(key, depth - 1), plain(inner, depth - 1)]] for key, inner in value.items()]]
    if kind in (list, tuple, set, frozenset):
        return [kind.__name__, [plain(inner, depth - 1) for inner in value]]
    if isinstance(value, Iterator):
        return ["iterator", [plain(inner, depth - 1) for inner in islice(value, MAX_ITEMS)]]
    raise NotPlainError(f"an object of type {kind.__name__}: only plain data can be tested")


def value_of(packed: Any) -> Any:
    """Return the value that :func:`plain` packed; :class:`NotPlainError` for anything else."""
    if isinstance(packed, dict):
        raise NotPlainError("a malformed value")
    if not isinstance(packed, list):
        return packed
    try:
        kind, content = packed
        return _BUILD[kind]([value_of(inner) for inner in content])
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise NotPlainError(f"a malformed value: {type(error).__name__}") from None
