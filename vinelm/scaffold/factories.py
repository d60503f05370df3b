"""The models that nodes ask a function for which makes one by its name: ``get_model("gpt-5-mini")``. Nothing is called."""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from types import CodeType, FunctionType
from typing import Any

_LOOKUPS = frozenset({"get", "getenv"})
"""Calls whose second argument is the value of what is not set."""


def names_asked(maker: CodeType, parameter: str, functions: Sequence[FunctionType]) -> list[str]:
    """Return the names that functions give for a parameter of the function whose code is ``maker``.

    What a configuration chooses is its default: ``config.get("model", "gpt-5")`` runs ``gpt-5`` today.

    Args:
        maker: The code of the function that makes the model.
        parameter: Its parameter that names the model.
        functions: What a node's code refers to, ``maker``'s function among it.

    Returns:
        The names in the order of the calls; empty if one of them is not known, or nothing calls it.
    """
    signature = next((inspect.signature(one) for one in functions if one.__code__ is maker), None)
    found: list[str | None] = []
    for function in functions:
        tree = _tree_of(function)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _called(node) == maker.co_name and signature is not None:
                given = _argument(node, parameter, list(signature.parameters))
                default = signature.parameters[parameter].default
                found.append(_text(default) if given is None else _said(given, _assigned(tree), function.__globals__))
    return [] if None in found else [name for name in found if name is not None]


def _tree_of(function: FunctionType) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):  # no source, or a lambda within other code
        return ast.Module([], [])


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def _argument(call: ast.Call, parameter: str, parameters: Sequence[str]) -> ast.expr | None:
    """What a call gives for a parameter; None if it leaves that to the default."""
    named = (keyword.value for keyword in call.keywords if keyword.arg == parameter)
    given = dict(zip((name for name in parameters if name not in {"self", "cls"}), call.args, strict=False))
    return next(named, None) or given.get(parameter)


def _assigned(tree: ast.AST) -> dict[str, list[ast.expr]]:
    """The values that each local name is given."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in (one for one in node.targets if isinstance(one, ast.Name)):
                found.setdefault(target.id, []).append(node.value)
    return found


def _said(expression: ast.expr, local: Mapping[str, Iterable[ast.expr]], names: Mapping[str, Any]) -> str | None:
    """The text that an expression stands for where nothing else is configured; None if that is not written."""
    if isinstance(expression, ast.Constant):
        return _text(expression.value)
    if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.Or):
        return _said(expression.values[-1], local, names)
    if isinstance(expression, ast.Call) and _called(expression) in _LOOKUPS and len(expression.args) == 2:
        asked, default = expression.args
        set_now = os.environ.get(str(asked.value)) if isinstance(asked, ast.Constant) and _is_environment(expression) else None
        return set_now or _said(default, local, names)
    if isinstance(expression, ast.Name) and expression.id in local:
        values = list(local[expression.id])
        rest = {name: found for name, found in local.items() if name != expression.id}  # x = x or "gpt-5"
        return _said(values[0], rest, names) if len(values) == 1 else None
    return _text(_value(expression, names))


def _is_environment(call: ast.Call) -> bool:
    return _called(call) == "getenv" or ast.unparse(call.func).endswith("environ.get")


def _value(expression: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(expression, ast.Name):
        return names.get(expression.id)
    if not isinstance(expression, ast.Attribute):
        return None
    owner = _value(expression.value, names)
    read = getattr if isinstance(owner, type) else inspect.getattr_static  # of an object, a property would be the author's code
    return read(owner, expression.attr, None)


def _text(value: Any) -> str | None:
    found = value.value if isinstance(value, Enum) else value
    return found if isinstance(found, str) and found else None
