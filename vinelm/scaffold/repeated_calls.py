"""Finds nodes whose source may call their models several times in one execution, without a checkpoint in between."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any

from langchain_core.prompts import BasePromptTemplate
from langgraph.graph.state import CompiledStateGraph

from vinelm.adapters.langgraph.nodes.signature import code_of, held_attribute, is_user_code
from vinelm.adapters.langgraph.structure.chat_search import holds_chat
from vinelm.scaffold.plain_code import RUNS, source_of

_CALLS = RUNS | {"create", "parse"}
"""Methods that call a model, including those of the openai SDK."""
_MANY = 2
_LOOPED = 1_000
"""Stands for the unknown number of turns of a loop, and of calls made in it."""
_SCOPES = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


def repeating_nodes(graph: CompiledStateGraph[Any, Any, Any, Any], nodes: Iterable[str]) -> dict[str, bool]:
    """Return a dict of the nodes whose function may call a model more than once; the value is True if it does so in a loop.

    A call counts as a model call if it is unclear what its name refers to.

    Args:
        graph: the graph.
        nodes: the nodes that hold a chat model.
    """
    found = {}
    for node in nodes:
        runnable = graph.builder.nodes[node].runnable
        functions = (held_attribute(runnable, name) for name in ("func", "afunc"))
        one = next((inspect.unwrap(code_of(one)) for one in functions if one is not None), None)
        calls = 0 if one is None else _Count(frozenset()).of(getattr(one, "__func__", one))
        if calls >= _MANY:
            found[node] = calls >= _LOOPED
    return found


class _Count:
    """Counts the maximum number of model calls in one execution of a function.

    Args:
        within: the functions that are already being counted, because they call this one; they count as 0, so that recursion
            ends.
    """

    def __init__(self, within: frozenset[Any]) -> None:
        self._within = within
        self._names: dict[str, Any] = {}
        self._prompts: set[str] = set()

    def of(self, function: Any) -> int:
        if not isinstance(function, FunctionType) or function in self._within:
            return 0
        if not is_user_code(function.__module__ or "", function.__code__.co_filename):
            return 0
        self._within |= {function}
        self._names = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        self._names = {name: self._names[name] for name in self._names if name not in function.__code__.co_varnames}
        tree = source_of(function)
        self._prompts = {name for one in ast.walk(tree) for name in self._made_prompts(one)}
        bodies = [one.body for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)][:1]
        return sum(map(self._block, bodies))

    def _block(self, statements: Sequence[ast.stmt]) -> int:
        count = 0
        for number, one in enumerate(statements):
            if isinstance(one, ast.If):
                tested, taken = count + self._inside(one.test), self._block(one.body)
                if isinstance(one.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break):
                    return tested + max(taken, self._block([*one.orelse, *statements[number + 1 :]]))
                count = tested + max(taken, self._block(one.orelse))
            elif isinstance(one, ast.For | ast.AsyncFor):
                count += _turns(one.body) * self._block(one.body) + self._inside(one.iter)
            elif isinstance(one, ast.While):
                count += _turns(one.body) * (self._block(one.body) + self._inside(one.test))
            elif isinstance(one, ast.Try):
                handlers = max((self._block(handler.body) for handler in one.handlers), default=0)
                count += self._block(one.body) + handlers + self._block(one.orelse) + self._block(one.finalbody)
            elif isinstance(one, ast.With | ast.AsyncWith):
                count += self._block(one.body)
            else:
                count += self._inside(one)
        return count

    def _inside(self, node: ast.AST) -> int:
        """Return the number of model calls in an expression or simple statement; 0 for a statement with a block, such as
        ``if``.
        """
        if isinstance(node, ast.stmt) and hasattr(node, "body"):
            return 0
        factor = _LOOPED if isinstance(node, _SCOPES) else 1
        own = self._called(node) if isinstance(node, ast.Call) else 0
        return own + factor * sum(map(self._inside, ast.iter_child_nodes(node)))

    def _called(self, call: ast.Call) -> int:
        if isinstance(call.func, ast.Name):
            return _Count(self._within).of(inspect.unwrap(found)) if callable(found := self._names.get(call.func.id)) else 0
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _CALLS:
            return 0
        owner: ast.AST = call.func.value
        while isinstance(owner, ast.Attribute | ast.Call | ast.Subscript):
            owner = owner.func if isinstance(owner, ast.Call) else owner.value
        name = owner.id if isinstance(owner, ast.Name) else ""
        return 0 if name in self._prompts or (name in self._names and not holds_chat(self._names[name])) else 1

    def _made_prompts(self, node: ast.AST) -> Iterator[str]:
        """Yield the variables to which a statement assigns a prompt template, since a template's ``invoke`` is not a model
        call.

        For example ``prompt`` in ``prompt = PromptTemplate.from_template(..)``.
        """
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = node.value.func
            kind = self._names.get(getattr(made.value if isinstance(made, ast.Attribute) else made, "id", ""))
            if isinstance(kind, type) and issubclass(kind, BasePromptTemplate):
                yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _turns(body: Sequence[ast.stmt]) -> int:
    """Return by how much model calls in a loop's body are multiplied: by 1 if the body ends with return or break.

    Such a loop is a retry. Other loops have a factor that stands for many turns.
    """
    last = body[-1]
    if isinstance(last, ast.Try):
        return _turns(last.orelse or last.body)
    if isinstance(last, ast.With | ast.AsyncWith):
        return _turns(last.body)
    return 1 if isinstance(last, ast.Return | ast.Break) else _LOOPED
