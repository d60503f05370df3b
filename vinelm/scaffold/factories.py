"""The models that nodes ask a function for which makes one by its name: ``get_model("gpt-5-mini")``. Nothing is called."""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Mapping, Sequence
from enum import Enum
from types import CodeType, FunctionType
from typing import Any

from vinelm.scaffold.model_calls import value_of


def names_asked(maker: CodeType, parameter: str, functions: Sequence[FunctionType]) -> list[str]:
    """Return the names that functions give for a parameter of the function whose code is ``maker``.

    Args:
        maker: The code of the function that makes the model.
        parameter: Its parameter that names the model.
        functions: What a node's code refers to, ``maker``'s function among it.

    Returns:
        The names in the order of the calls; empty if one of them is not known, or nothing calls it.
    """
    signature = next((inspect.signature(one) for one in functions if one.__code__ is maker), None)
    if signature is None:
        return []
    found: list[str | None] = []
    for function in functions:
        tree = _tree_of(function)
        bound = _bound(tree) | {name: [None] for name in function.__code__.co_freevars}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _is_call_of(node, maker, function.__globals__):
                given = _argument(node, parameter, list(signature.parameters))
                default = signature.parameters[parameter].default
                found.append(_text(default) if given is None else _said(given, bound, function.__globals__))
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


def _is_call_of(call: ast.Call, maker: CodeType, names: Mapping[str, Any]) -> bool:
    """Whether a call is one of that function: by what its name stands for, else by the name, as of ``self.make(...)``."""
    function = value_of(call.func, names)
    return _called(call) == maker.co_name if function is None else getattr(inspect.unwrap(function), "__code__", None) is maker


def _bound(tree: ast.AST) -> dict[str, list[ast.expr | None]]:
    """The values that each local name is given; None where that is not an expression, as of a parameter or in a loop."""
    found: dict[str, list[ast.expr | None]] = {}
    plain: set[ast.expr] = set()
    for node in ast.walk(tree):  # a statement comes before the names in it
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    plain.add(target)
                    found.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.arg):
            found.setdefault(node.arg, []).append(None)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in plain:
            found.setdefault(node.id, []).append(None)
    return found


def _said(expression: ast.expr, bound: Mapping[str, Sequence[ast.expr | None]], names: Mapping[str, Any]) -> str | None:
    """The text that an expression stands for, of ``config.get("model", "gpt-5")`` the default; None if that is not written."""
    if isinstance(expression, ast.Constant):
        return _text(expression.value)
    if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.Or):
        return _said(expression.values[-1], bound, names)
    if isinstance(expression, ast.Call) and _called(expression) in {"get", "getenv"} and len(expression.args) == 2:
        asked, default = expression.args
        is_environment = ast.unparse(expression.func).endswith(("getenv", "environ.get"))
        set_now = os.environ.get(str(asked.value)) if is_environment and isinstance(asked, ast.Constant) else None
        return set_now or _said(default, bound, names)
    if isinstance(expression, ast.Name) and expression.id in bound:
        only = bound[expression.id][0] if len(bound[expression.id]) == 1 else None
        return None if only is None else _said(only, {**bound, expression.id: [None]}, names)  # it may be made of itself
    return _text(value_of(expression, {name: value for name, value in names.items() if name not in bound}))


def _text(value: Any) -> str | None:
    found = value.value if isinstance(value, Enum) else value
    return found if isinstance(found, str) and found else None
