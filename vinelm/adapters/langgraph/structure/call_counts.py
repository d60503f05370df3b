"""Finds nodes whose source may call their models several times in one execution, or not at all."""

from __future__ import annotations

import ast
import builtins
import inspect
import logging
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

from langchain_core.prompts import BasePromptTemplate
from langgraph.graph.state import CompiledStateGraph

from vinelm.adapters.langgraph.nodes.signature import code_of, held_attribute, is_user_code
from vinelm.adapters.langgraph.structure.chat_search import holds_chat

RUNS = frozenset({"invoke", "ainvoke", "stream", "astream", "batch", "abatch", "predict"})
"""The methods that run a graph, a chain or a model."""
_CALLS = RUNS | {"create", "parse"}
"""Methods that call a model, including those of the openai SDK."""
_MANY = 2
_LOOPED = 1_000
"""Stands for the unknown number of turns of a loop, and of calls made in it."""
_HARMLESS = frozenset(
    name for kind in (str, list, dict, set, int, float, bytes, re.Pattern, re.Match, logging.Logger) for name in dir(kind)
) | {"print"}
"""Methods of Python's own types, of loggers and of consoles, whose names say that they call no model."""
_PACKAGES = frozenset({"langgraph", "langchain_core"})
"""Packages whose functions call no model: what asks a person, writes to a stream, or makes messages and prompts."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_COMPREHENSIONS, ast.Lambda)


def repeating_nodes(graph: CompiledStateGraph[Any, Any, Any, Any], nodes: Iterable[str]) -> dict[str, bool]:
    """Return a dict of the nodes whose function may call a model more than once; the value is True if it does so in a loop.

    A call counts as a model call if it is unclear what its name refers to.

    Args:
        graph: the graph.
        nodes: the nodes that hold a chat model.
    """
    counts = {node: _Count(frozenset()).of(_function_of(graph, node)) for node in nodes}
    return {node: calls >= _LOOPED for node, calls in counts.items() if calls >= _MANY}


def skipping_nodes(graph: CompiledStateGraph[Any, Any, Any, Any], nodes: Iterable[str]) -> list[str]:
    """Return those of ``nodes`` whose function may end without a model call, such as a check that finds nothing to mend.

    Whatever might call a model counts as a call, so that a node is returned only if its source is clear. A ``for`` loop or a
    comprehension over a value that is only known at run time, such as the documents that a search found, may turn zero times.
    A ``while`` loop is assumed to turn at least once, and the body of a ``try`` to raise nothing.
    """
    return [node for node in nodes if _Count(frozenset()).may_be_none(_function_of(graph, node))]


def _function_of(graph: CompiledStateGraph[Any, Any, Any, Any], node: str) -> Any:
    """Return the function of a node; None if it has none."""
    functions = (held_attribute(graph.builder.nodes[node].runnable, name) for name in ("func", "afunc"))
    found = next((inspect.unwrap(code_of(one)) for one in functions if one is not None), None)
    return getattr(found, "__func__", found)


class _Count:
    """Counts the maximum number of model calls in one execution of a function, or finds whether there may be none.

    Args:
        within: the functions that are already being counted, because they call this one; they count as 0, so that recursion
            ends.
    """

    def __init__(self, within: frozenset[Any]) -> None:
        self._within = within
        self._names: dict[str, Any] = {}
        self._prompts: set[str] = set()

    def of(self, function: Any) -> int:
        return self._block(self._body(function))

    def may_be_none(self, function: Any) -> bool:
        """Return whether some path through a function ends without a model call; False if its source is not known."""
        body = self._body(function)
        return bool(body) and any(self._without(body))

    def _body(self, function: Any) -> Sequence[ast.stmt]:
        """Return a function's statements, and store the values of the outer names that it uses, for later look-ups.

        Empty for code that is not the user's, and for a function that is being inspected already.
        """
        if not isinstance(function, FunctionType) or function in self._within:
            return ()
        if not is_user_code(function.__module__ or "", function.__code__.co_filename):
            return ()
        self._within |= {function}
        self._names = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        self._names = {name: self._names[name] for name in self._names if name not in function.__code__.co_varnames}
        tree = source_of(function)
        self._prompts = {name for one in ast.walk(tree) for name in self._made_prompts(one)}
        return next((one.body for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)), ())

    def _without(self, statements: Sequence[ast.stmt]) -> tuple[bool, bool]:
        """Return (can end, can return): what is possible if the statements are executed without calling a model.

        "Can end" is whether the execution can reach the end of the statements, ``continue`` or ``break``. "Can return" is
        whether it can return from the function.
        """
        returns = False
        for one in statements:
            if isinstance(one, _DEFINITIONS):
                continue
            if isinstance(one, ast.Raise):
                return False, returns
            if isinstance(one, ast.Continue | ast.Break):
                return True, returns
            heads, blocks = _parts_of(one)
            if isinstance(one, ast.For | ast.AsyncFor) and self._may_be_empty(one.iter):
                blocks = [*blocks, ()]
            if any(map(self._may_call, heads)):
                return False, returns
            if isinstance(one, ast.Return):
                return False, True
            ways = [self._without(block) for block in blocks]
            returns |= any(is_left for _, is_left in ways)
            if not any(falls for falls, _ in ways):
                return False, returns
        return True, returns

    def _may_call(self, node: ast.AST) -> bool:
        """Return whether an expression or a simple statement calls a model, or might call one."""
        match node:
            case ast.Await(value=value) if not isinstance(value, ast.Call):
                return True
            case ast.Call() if not self._is_harmless(node):
                return True
        if isinstance(node, _COMPREHENSIONS) and self._may_be_empty(iterated := node.generators[0].iter):
            return self._may_call(iterated)
        return any(map(self._may_call, ast.iter_child_nodes(node)))

    def _may_be_empty(self, iterated: ast.AST) -> bool:
        """Return whether a loop over the expression may turn zero times: not over numbers, literals and filled constants."""
        match iterated:
            case ast.Call(func=ast.Name(id="range" | "count")) | ast.Call(func=ast.Attribute(attr="count")):
                return False
            case ast.Call(func=ast.Name(id="enumerate" | "reversed" | "sorted" | "list" | "tuple" | "zip"), args=[first, *_]):
                return self._may_be_empty(first)
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items) | ast.Dict(keys=items):
                return not items or all(isinstance(one, ast.Starred) for one in items)
            case ast.Name(id=name) if name in self._names:
                return not self._names[name]
        return True

    def _is_harmless(self, call: ast.Call) -> bool:
        if isinstance(call.func, ast.Name):
            called = self._names.get(call.func.id, getattr(builtins, call.func.id, None))
            return self._is_harmless_function(inspect.unwrap(called) if callable(called) else called)
        if not isinstance(call.func, ast.Attribute):
            return False
        if call.func.attr in _CALLS:
            return self._called(call) == 0
        owner = self._names.get(_root_of(call.func.value))
        return call.func.attr in _HARMLESS or (owner is not None and not holds_chat(owner))

    def _is_harmless_function(self, called: Any) -> bool:
        """Return whether a class or function need not call a model.

        Classes, built-in functions, and functions of the standard library, LangGraph and langchain-core call none. A function
        of the application may call none if its code makes no call that may be a model call, except in loops that may be empty.
        """
        if not isinstance(called, FunctionType):
            return isinstance(called, type | BuiltinFunctionType)
        package = (called.__module__ or "").partition(".")[0]
        if package in sys.stdlib_module_names or package in _PACKAGES:
            return True
        own = _Count(self._within)
        body = own._body(called)
        return called in self._within or (bool(body) and not any(map(own._may_call, body)))

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
        name = _root_of(call.func.value)
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


def _parts_of(statement: ast.stmt) -> tuple[Sequence[ast.AST], Sequence[Sequence[ast.stmt]]]:
    """Return (heads, blocks): the expressions that a statement evaluates first, and the alternative blocks that it runs next.

    A ``try`` statement has one block, which leaves out its handlers. A statement without blocks is returned as its own head,
    with one empty block.
    """
    match statement:
        case ast.If(test=test, body=body, orelse=orelse):
            return [test], [body, orelse]
        case ast.For(iter=head, body=body) | ast.AsyncFor(iter=head, body=body) | ast.While(test=head, body=body):
            return [head], [body]
        case ast.Try(body=body, orelse=orelse, finalbody=final):
            return [], [[*body, *orelse, *final]]
        case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
            return items, [body]
        case ast.Match(subject=subject, cases=cases):
            return [subject], [*(case.body for case in cases), ()]
    return [statement], [()]


def _root_of(expression: ast.AST) -> str:
    """Return the name with which an expression begins: ``llm`` for ``llm.bind(stop=["x"]).first[0]``; "" without one."""
    while isinstance(expression, ast.Attribute | ast.Call | ast.Subscript):
        expression = expression.func if isinstance(expression, ast.Call) else expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def _turns(body: Sequence[ast.stmt]) -> int:
    """Return the factor by which a loop multiplies the number of model calls in its body.

    It is 1 if the body ends with ``return`` or ``break``, since such a loop is a retry. Otherwise it is a large number, because
    the number of turns is unknown.
    """
    last = body[-1]
    if isinstance(last, ast.Try):
        return _turns(last.orelse or last.body)
    if isinstance(last, ast.With | ast.AsyncWith):
        return _turns(last.body)
    return 1 if isinstance(last, ast.Return | ast.Break) else _LOOPED


def source_of(function: Callable[..., Any]) -> ast.AST:
    """Return the parsed source of a function; an empty module if the source is unavailable."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # created at run time
        return ast.Module([], [])
