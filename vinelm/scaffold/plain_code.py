"""Analyses functions without running them: whether they make graphs, run them or call models; and their inputs and outputs."""

from __future__ import annotations

import ast
import dis
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from types import FunctionType
from typing import Any, get_type_hints

from langchain_core.messages import BaseMessage
from langgraph.graph.state import CompiledStateGraph, StateGraph
from langgraph.pregel import Pregel
from pydantic import BaseModel

from vinelm.adapters.langgraph.nodes.signature import closure_values, held_attribute, is_user_code
from vinelm.adapters.langgraph.structure.call_counts import RUNS, source_of
from vinelm.foreign_code import answered

_BUILDERS = re.compile(r"StateGraph|MessageGraph|create_\w*(agent|supervisor|swarm|graph)")


@dataclass(frozen=True, slots=True)
class GraphCode:
    """What the code of a function does with graphs.

    Attributes:
        builds: Whether the function, or an application function that it refers to, makes or returns a graph.
        runs: Whether the function's own code invokes a graph, a chain or a model.
    """

    builds: bool
    runs: bool


def graph_code(function: Callable[..., Any]) -> GraphCode:
    """Return two facts about a function: whether it makes a graph, and whether its code runs a graph, a chain or a model.

    They are found in its return annotation and in the names that its code uses.
    """
    plain = inspect.unwrap(getattr(function, "func", function))  # also of a partial
    plain = getattr(plain, "__func__", plain) if inspect.isroutine(plain) else type(plain).__call__
    if not isinstance(plain, FunctionType):
        return GraphCode(_returns_graph(plain), False)
    return GraphCode(_builds(plain), bool(RUNS & set(plain.__code__.co_names)))


def _builds(function: FunctionType) -> bool:
    waiting, seen = [function], set[int]()
    for one in waiting:  # grows while it is read
        if id(one) in seen:
            continue
        seen.add(id(one))
        if _returns_graph(one):
            return True
        if not is_user_code(one.__module__ or "", one.__code__.co_filename):
            continue
        if any(_BUILDERS.fullmatch(name) for name in one.__code__.co_names):
            return True
        for value in referred_to(one):
            if isinstance(value, StateGraph | Pregel):
                return True
            if isinstance(value, type) and isinstance(vars(value).get("__init__"), FunctionType):
                value = vars(value)["__init__"]  # noqa: PLW2901 - what calling the class runs
            if isinstance(value := inspect.unwrap(value) if callable(value) else value, FunctionType):
                waiting.append(value)
    return False


def returns_value(function: Callable[..., Any]) -> bool:
    """Return whether some path through a function's code returns a value other than None."""
    before: dis.Instruction | None = None
    for step in dis.get_instructions(function):
        if step.opname == "RETURN_CONST" and step.argval is not None:
            return True
        is_none = before is not None and before.opname == "LOAD_CONST" and before.argval is None
        if step.opname == "RETURN_VALUE" and not is_none:
            return True
        before = step
    return False


def referred_to(function: FunctionType) -> Iterator[Any]:
    """Yield the values that a function's code refers to by name, from its closure and its module."""
    yield from closure_values(function)
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield function.__globals__[name]


def called_graphs(runnable: Any) -> Iterator[CompiledStateGraph[Any, Any, Any, Any]]:
    """Yield the compiled graphs to which the function of a graph's node refers, each perhaps more than once."""
    functions = (held_attribute(runnable, name) for name in ("func", "afunc"))
    for function in (inspect.unwrap(one) for one in functions if callable(one)):
        plain = getattr(function, "__func__", function)
        if isinstance(plain, FunctionType):
            yield from (one for one in referred_to(plain) if isinstance(one, CompiledStateGraph))


def _returns_graph(function: Any) -> bool:
    annotation = getattr(function, "__annotations__", {}).get("return")
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return "Graph" in name or "Pregel" in name


ANSWER = "answer"
"""The key for a function's result if it is not a dict."""


@dataclass(frozen=True, kw_only=True)
class CodeKeys:
    """The keys of a function's input and result, and the form of its input.

    Attributes:
        inputs: Keys of the function's input: its parameters or, if it takes a single dict, the keys that it reads from this
            dict.
        outputs: Keys of the function's result, as far as its source shows them.
        takes_dict: Whether the function's only argument is a dict.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    takes_dict: bool


def code_keys(code: Any) -> CodeKeys:
    """Return the input keys and output keys of a function, or of an entrypoint of LangGraph's functional API, without
    calling it.
    """
    function = function_of(code)
    given = [
        p for p in inspect.signature(function).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    names = [p.name for p in given if p.default is p.empty and p.name not in ("self", "config")] or [p.name for p in given[:1]]
    tree = source_of(function)
    outputs = fields_returned(function) or tuple(dict.fromkeys(_returned(tree))) or (ANSWER,)
    if isinstance(code, Pregel) or (len(names) == 1 and _is_dict(function, names[0], tree)):
        read = tuple(dict.fromkeys(_read_of(tree, names[0]))) if names else ()
        return CodeKeys(inputs=read, outputs=outputs, takes_dict=True)
    return CodeKeys(inputs=tuple(names), outputs=outputs, takes_dict=False)


def fields_returned(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the fields of a function's result if its annotation is a dataclass or a pydantic model; empty otherwise.

    Empty also for LangChain's messages, which are read as texts, and for a dataclass with slots.
    """
    kind = answered(lambda: get_type_hints(function).get("return"), None)  # an annotation may name what is not imported
    if not isinstance(kind, type) or issubclass(kind, BaseMessage):
        return ()
    if issubclass(kind, BaseModel):
        return tuple(kind.model_fields)
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) and "__slots__" not in vars(kind) else ()


def function_of(code: Any) -> Callable[..., Any]:
    """Return the Python function inside a LangGraph entrypoint; a function is returned unchanged."""
    if not isinstance(code, Pregel):
        return code  # type: ignore[no-any-return]
    bound: Any = next(iter(code.nodes.values())).bound
    bound = bound.steps[0] if hasattr(bound, "steps") else bound
    function = getattr(bound, "func", None) or getattr(bound, "afunc", None) or bound
    found: Callable[..., Any] = inspect.unwrap(getattr(function, "func", function))  # an async function is a partial
    return found


def _is_dict(function: Callable[..., Any], name: str, tree: ast.AST) -> bool:
    annotation = inspect.signature(function).parameters[name].annotation
    if annotation is inspect.Parameter.empty:
        return any(_read_of(tree, name))
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    is_typed = isinstance(annotation, type) and hasattr(annotation, "__total__")
    return is_typed or text.partition("[")[0].lower() in ("dict", "mapping", "typing.mapping")


def _read_of(tree: ast.AST, name: str) -> Iterator[str]:
    """Yield the keys that code reads from the dict ``name``, as in ``name["key"]`` and ``name.get("key")``."""
    for found in filter(None, map(_item, ast.walk(tree))):
        if isinstance(found[0], ast.Name) and found[0].id == name:
            yield found[1]


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of a dict or object in a graph's state.

    Attributes:
        names: The fields that its type has, or that code reads from it.
        needed: The fields that code requires and never writes.
        is_list: Whether the value is a list of objects with these fields.
    """

    names: tuple[str, ...]
    needed: tuple[str, ...] = ()
    is_list: bool = False


def fields_read(functions: Iterable[Callable[..., Any]], key: str) -> Fields:
    """Return the fields that functions read from the value under ``key`` of the state, as in ``state["data"]["ticker"]``.

    A field also counts if it is read through a variable, or in another function to which a function passes the value.
    """
    read, needed, written = dict[str, None](), dict[str, None](), set[str]()
    waiting = [(function, key, frozenset[str]()) for function in functions]
    for function, name, held in waiting:  # grows while it is read
        tree = source_of(function)
        names = held | {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and _is_key(node.value, name, frozenset())
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                written |= {one.value for one in node.keys if isinstance(one, ast.Constant) and isinstance(one.value, str)}
            if isinstance(node, ast.Call):
                passed = _passed(node, function, partial(_is_key, key=name, names=names))
                waiting += [(called, "", held) for called, held in passed if (called, "", held) not in waiting]
            field = _item(node)
            if field is not None and _is_key(field[0], name, names):
                read[field[1]] = None
                needed |= {field[1]: None} if isinstance(node, ast.Subscript) else {}
    return Fields(names=tuple(read), needed=tuple(name for name in needed if name not in written))


def _passed(
    call: ast.Call, function: Callable[..., Any], is_value: Callable[[ast.expr], bool]
) -> Iterator[tuple[FunctionType, frozenset[str]]]:
    """Yield (called function, names of its parameters that get the value), if a call passes a certain value to an
    application function.

    Args:
        call: The call.
        function: The function whose source contains the call.
        is_value: Returns whether an expression is the value in question.
    """
    found = getattr(function, "__globals__", {}).get(call.func.id) if isinstance(call.func, ast.Name) else None
    if not isinstance(found, FunctionType) or not is_user_code(found.__module__ or "", found.__code__.co_filename):
        return
    names = [
        *(name for name, value in zip(found.__code__.co_varnames, call.args, strict=False) if is_value(value)),
        *(one.arg for one in call.keywords if one.arg is not None and is_value(one.value)),
    ]
    if names:
        yield found, frozenset(names)


def _item(node: ast.AST) -> tuple[ast.expr, str] | None:
    """Return the owner and key read by ``owner["key"]`` or ``owner.get("key")``; None for any other node."""
    key: ast.expr | None = None
    owner: ast.expr | None = None
    if isinstance(node, ast.Subscript):
        owner, key = node.value, node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        owner, key = node.func.value, node.args[0]
    if owner is not None and isinstance(key, ast.Constant) and isinstance(key.value, str):
        return owner, key.value
    return None


def _is_key(node: ast.expr, key: str, names: Collection[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Attribute):
        return node.attr == key
    found = _item(node)
    return found is not None and found[1] == key


def _returned(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
            yield from (key.value for key in node.value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
