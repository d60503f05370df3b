"""The syntax tree of a function or class as plain JSON, identical under every supported version of Python.

The text that Python generates from a tree (``ast.unparse``), its dump and its bytecode differ between versions. So a digest of
them would report a code change after an upgrade. Here fields that only some versions have are left out if empty, and the pieces
of f-strings, which differ between versions, are joined.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from types import FunctionType
from typing import Any

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


def tree_of(target: FunctionType | type) -> Any:
    """Return a list with the syntax tree of a function or class, as nested lists; None without source code.

    Layout, comments and docstrings are left out. Lambdas that begin on the same line cannot be distinguished, so the list then
    has the trees of all of them.
    """
    inner = inspect.unwrap(target) if isinstance(target, FunctionType) else target
    target = inner if isinstance(inner, (FunctionType, type)) else target
    try:
        lines = inspect.findsource(target if isinstance(target, FunctionType) else inspect.getmodule(target) or target)[0]
    except (OSError, TypeError, IndexError):
        return None
    found = list(_found(target, "".join(lines))) or list(_alone(target))
    return [plain(node) for node in found] or None


def _found(target: FunctionType | type, text: str) -> Iterator[ast.AST]:
    """Yield the definitions in a file's source ``text`` that match the function or class ``target``."""
    if isinstance(target, FunctionType):
        code = target.__code__
        yield from (
            node
            for _, node in _definitions(text)
            if _first_line(node) == code.co_firstlineno and getattr(node, "name", "<lambda>") == code.co_name
        )
    else:
        yield from (node for name, node in _definitions(text) if isinstance(node, ast.ClassDef) and name == target.__qualname__)


def _alone(target: FunctionType | type) -> Iterator[ast.AST]:
    """Yield the syntax tree of a function, parsed from the function's own source lines; nothing for a class.

    This is used if no definition in the file matches, because the file does not parse or has changed since the import.
    """
    if isinstance(target, FunctionType):
        try:
            yield ast.parse(textwrap.dedent(inspect.getsource(target)))
        except (OSError, TypeError, SyntaxError):
            return


@lru_cache(maxsize=64)
def _definitions(text: str) -> tuple[tuple[str, _Definition], ...]:
    """Return the definitions in a file's source ``text`` with their qualified names; empty if the text cannot be parsed."""

    def inside(node: ast.AST, path: str) -> Iterator[tuple[str, _Definition]]:
        for child in ast.iter_child_nodes(node):
            below = path
            if isinstance(child, _Definition):
                name = path + getattr(child, "name", "<lambda>")
                yield name, child
                below = f"{name}." if isinstance(child, ast.ClassDef) else f"{name}.<locals>."
            yield from inside(child, below)

    try:
        return tuple(inside(ast.parse(text), ""))
    except (SyntaxError, ValueError):
        return ()


def _first_line(node: _Definition) -> int:
    """Return the line where a definition's code begins: the line of its first decorator, if it has any."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def plain(node: Any) -> Any:
    """Return a syntax tree as nested lists.

    A node becomes a list of its type and of a [field name, value] pair for each field that is not empty.
    """
    if isinstance(node, list):
        return [plain(item) for item in node]
    if isinstance(node, ast.Constant):
        return _constant(node.value)
    if isinstance(node, ast.JoinedStr):
        return ["JoinedStr", _joined(node.values)]
    if not isinstance(node, ast.AST):
        return node if isinstance(node, (str, int, type(None))) else repr(node)
    fields = [[name, plain(value)] for name, value in ast.iter_fields(_without_docstring(node)) if value not in (None, [])]
    if isinstance(node, ast.FormattedValue):  # an empty format is omitted
        fields = [field for field in fields if field != ["format_spec", ["JoinedStr", []]]]
    return [type(node).__name__, *fields]


def _constant(value: Any) -> Any:
    if isinstance(value, str):
        return ["str", value]
    return [type(value).__name__, format(value, "x") if type(value) is int else repr(value)]  # decimal digits are limited


def _joined(values: list[ast.expr]) -> list[Any]:
    """Return the parts of an f-string, with adjacent texts joined."""
    parts: list[Any] = []
    for value in values:
        part = plain(value)
        if part == ["str", ""]:
            continue
        if parts and part[0] == parts[-1][0] == "str":
            parts[-1] = ["str", parts[-1][1] + part[1]]
        else:
            parts.append(part)
    return parts


def _without_docstring(node: ast.AST) -> ast.AST:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or ast.get_docstring(node) is None:
        return node
    fields = dict(ast.iter_fields(node))
    return type(node)(**{**fields, "body": node.body[1:] or [ast.Pass()]})
