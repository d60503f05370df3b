"""Finds, in the source, where an application waits for a person, and an answer that lets it continue."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from langgraph.graph.state import CompiledStateGraph

from vinelm.adapters.langgraph.nodes.signature import held_attribute
from vinelm.adapters.langgraph.structure.call_counts import source_of

_YES = ("accept", "approve", "approved", "yes", "y", "ok", "okay", "continue", "confirm", "proceed", "true")
"""Words that let an application continue, the most common first."""
_ON = "Go on."
"""A free text that lets an application continue."""
_MIDDLEWARE = '{"decisions": [{"type": "approve"} for _ in value["action_requests"]]}'
"""An answer that LangChain's ``HumanInTheLoopMiddleware`` accepts."""
_INBOX = '[{"type": "accept" if one["config"].get("allow_accept") else "response", "args": "Go on."} for one in value]'
"""An answer of LangChain's agent inbox to a list of action requests."""


def waiting_nodes(graph: CompiledStateGraph[Any, Any, Any, Any]) -> dict[str, str | None]:
    """Return the nodes that wait for a person's answer (LangGraph's ``interrupt``), including nodes of subgraphs.

    Returns:
        For each node, a Python expression for an answer with which the graph can be resumed; it may use the interrupt's
            payload as ``value``. None if the source suggests no answer.
    """
    found: dict[str, str | None] = {}
    for node, spec in graph.builder.nodes.items():
        if isinstance(spec.runnable, CompiledStateGraph):
            found |= waiting_nodes(spec.runnable)
        elif node.startswith("HumanInTheLoop"):
            found[node] = _MIDDLEWARE
        else:
            answers = [_answer(source_of(one)) for one in _functions(spec.runnable) if "interrupt" in one.__code__.co_names]
            if answers:
                found[node] = answers[0] if len(set(answers)) == 1 else None
    return found


def _functions(runnable: Any) -> Iterator[Any]:
    """Yield the functions of a node, or of the tools that it runs."""
    tools: Mapping[str, Any] = held_attribute(runnable, "_tools_by_name") or held_attribute(runnable, "tools_by_name") or {}
    for one in (runnable, *tools.values()):
        for name in ("func", "afunc", "coroutine"):
            function: Callable[..., Any] | None = held_attribute(one, name)
            if function is not None and hasattr(plain := inspect.unwrap(function), "__code__"):
                yield plain


def _answer(tree: ast.AST) -> str | None:
    """Return a Python expression for an answer to the first ``interrupt`` in a function's syntax tree.

    None if the source does not show which answers the function expects.
    """
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    called = next((node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) == "interrupt"), None)
    if called is None:
        return None
    outer = above.get(called)
    is_list = isinstance(outer, ast.Subscript) and isinstance(outer.slice, ast.Constant) and outer.slice.value == 0
    if is_list and any(isinstance(node, ast.Constant) and node.value == "allow_accept" for node in ast.walk(tree)):
        return _INBOX
    at: ast.AST | None = outer if is_list else called
    statement = at
    while statement is not None and not isinstance(statement, ast.stmt):
        statement = above.get(statement)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    name = target.id if isinstance(target, ast.Name) else None
    uses = [node for node in ast.walk(tree) if node is at or (isinstance(node, ast.Name) and node.id == name)]
    wanted = _wanted(uses, above)
    keyed = {key: _chosen(values) for key, values in wanted.items() if key is not None}
    if keyed:
        text = "{" + ", ".join(f"{_code(key)}: {value}" for key, value in keyed.items()) + "}"
    elif wanted.get(None):
        text = _chosen(wanted[None])
    else:
        return None
    return f"[{text}]" if is_list else text


def _wanted(uses: list[ast.AST], above: Mapping[ast.AST, ast.AST]) -> dict[str | None, list[Any]]:
    """Return the values that the code compares a person's answer with.

    The result's keys are the keys of the answer, as in ``answer["type"]``; values compared with the whole answer have the key
    None.

    Args:
        uses: The syntax nodes that read the answer.
        above: The parent of each syntax node.
    """
    found: dict[str | None, list[Any]] = {}
    for use in uses:
        at, key = above.get(use), None
        if isinstance(at, ast.Attribute) and at.attr == "get" and isinstance(call := above.get(at), ast.Call) and call.args:
            key, at = call.args[0], above.get(call)
        elif isinstance(at, ast.Subscript) and at.value is use:
            key, at = at.slice, above.get(at)
        name = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
        values = found.setdefault(name, [])
        while isinstance(at, ast.Attribute | ast.Call):  # .lower(), str(...)
            at = above.get(at)
        if isinstance(at, ast.Compare):
            values += [node.value for node in ast.walk(at) if isinstance(node, ast.Constant) and node.value != name]
        elif isinstance(at, ast.If | ast.IfExp | ast.UnaryOp | ast.BoolOp):
            values.append(True)
        elif isinstance(at, ast.Match):
            values += [node.value for case in at.cases for node in ast.walk(case.pattern) if isinstance(node, ast.Constant)]
    return found


def _chosen(values: list[Any]) -> str:
    """Return, as Python code, the value that lets the application continue: one that means yes, otherwise the first.

    If ``values`` is empty, return a default.
    """
    words = {str(value).casefold(): value for value in reversed(values)}
    best = next((words[word] for word in _YES if word in words), values[0] if values else _ON)
    return _code(best)


def _code(value: Any) -> str:
    """Return the Python literal of a value, with double quotes, as in the files that ``vinelm init`` writes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
