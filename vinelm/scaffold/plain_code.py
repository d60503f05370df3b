"""The inputs and outputs of code without a graph, read off its signature and its source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from langgraph.pregel import Pregel

ANSWER = "answer"
"""The key of what a function returns that is no dict."""


@dataclass(frozen=True, kw_only=True)
class CodeKeys:
    """How a function is called.

    Attributes:
        inputs: Keys of its input: its parameters, or what it reads of the one dict that it takes.
        outputs: Keys of what it returns, as far as its source says.
        takes_dict: Whether it takes one dict.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    takes_dict: bool


def code_keys(code: Any) -> CodeKeys:
    """Return how a function, or an entrypoint of LangGraph's functional API, is called. It is not called."""
    function = function_of(code)
    given = [
        p for p in inspect.signature(function).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    names = [p.name for p in given if p.default is p.empty and p.name not in ("self", "config")] or [p.name for p in given[:1]]
    tree = source_of(function)
    outputs = tuple(dict.fromkeys(_returned(tree))) or (ANSWER,)
    if isinstance(code, Pregel) or (len(names) == 1 and _is_dict(function, names[0], tree)):
        read = tuple(dict.fromkeys(_read_of(tree, names[0]))) if names else ()
        return CodeKeys(inputs=read, outputs=outputs, takes_dict=True)
    return CodeKeys(inputs=tuple(names), outputs=outputs, takes_dict=False)


def function_of(code: Any) -> Callable[..., Any]:
    """Return the function of an entrypoint; a function is returned as it is."""
    if not isinstance(code, Pregel):
        return code  # type: ignore[no-any-return]
    bound: Any = next(iter(code.nodes.values())).bound
    bound = bound.steps[0] if hasattr(bound, "steps") else bound
    function = getattr(bound, "func", None) or getattr(bound, "afunc", None) or bound
    found: Callable[..., Any] = inspect.unwrap(getattr(function, "func", function))  # an async one is a partial
    return found


def source_of(function: Callable[..., Any]) -> ast.AST:
    """Return the parsed source of a function; empty where it has none."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # made at run time
        return ast.Module([], [])


def _is_dict(function: Callable[..., Any], name: str, tree: ast.AST) -> bool:
    annotation = inspect.signature(function).parameters[name].annotation
    if annotation is inspect.Parameter.empty:
        return any(_read_of(tree, name))
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    is_typed = isinstance(annotation, type) and hasattr(annotation, "__total__")
    return is_typed or text.partition("[")[0].lower() in ("dict", "mapping", "typing.mapping")


def _read_of(tree: ast.AST, name: str) -> Iterator[str]:
    """The keys that are read of a dict: ``name["key"]`` and ``name.get("key")``."""
    for node in ast.walk(tree):
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name:
            key = node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            owner = node.func.value
            key = node.args[0] if isinstance(owner, ast.Name) and owner.id == name else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def _returned(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
            yield from (key.value for key in node.value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
