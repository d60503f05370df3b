"""Kind switches: lines that ask which kind of trie, template, plan or decision they hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

QUESTIONS = frozenset(("is_linear", "is_merged", "is_contingent", "is_tree", "is_chain", "merges"))
KIND = re.compile(r"(Merged|Contingent|Branching|Linear|Path|Stage)(Trie|Template|Decision|Plan|Plans|Planner|Planners|Graph)")
PARTS = frozenset(("arm", "outcomes", "difficulty"))
"""Members that only some kinds of tries have."""
ROOMS = ("vinelm.trie", "vinelm.template", "vinelm.controller.planning", "vinelm.estimator.latent")
"""Where kinds may be told apart."""


def kind_switches(nodes: Iterable[ast.AST]) -> list[int]:
    """The lines that read ``is_linear`` and the like, or ask whether an object is an instance of a kind's class."""
    return sorted({node.lineno for node in nodes if _asks(node)})


def absence_switches(nodes: Iterable[ast.AST]) -> list[int]:
    """The lines that ask whether a trie lacks a member that only some kinds have (``trie.arm is None``)."""
    return sorted({node.lineno for node in nodes if _asks_for_none(node)})


def is_allowed(module: str) -> bool:
    """Whether kinds may be told apart in a module."""
    return any(module == room or module.startswith(f"{room}.") for room in ROOMS)


def _asks(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in QUESTIONS and isinstance(node.ctx, ast.Load)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass")):
        return False
    return any(KIND.fullmatch(name) for argument in node.args[1:] for name in _names(argument))


def _names(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr


def _asks_for_none(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr in PARTS):
        return False
    return _is_none(node.comparators) and all(isinstance(how, ast.Is | ast.IsNot) for how in node.ops)


def _is_none(values: Iterable[ast.expr]) -> bool:
    return all(isinstance(value, ast.Constant) and value.value is None for value in values)
