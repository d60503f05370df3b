"""Whether a function makes a graph, or is code that runs one or calls models: read off its code, without calling it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from langgraph.graph.state import StateGraph
from langgraph.pregel import Pregel

from vinelm.adapters.langgraph.nodes.user_code import closure_values, is_user_code

_BUILDERS = re.compile(r"StateGraph|MessageGraph|create_\w*(agent|supervisor|swarm|graph)")
RUNS = frozenset({"invoke", "ainvoke", "stream", "astream", "batch", "abatch", "predict"})
"""The methods that run a graph, a chain or a model."""


@dataclass(frozen=True, slots=True)
class GraphCode:
    """What the code of a function does with graphs.

    Attributes:
        builds: It, or a function of the application that it refers to, makes a graph or returns one.
        runs: Its own code invokes something: a graph, a chain or a model.
    """

    builds: bool
    runs: bool


def graph_code(function: Callable[..., Any]) -> GraphCode:
    """Return what a function does with graphs, by its annotation and by the names in its code."""
    plain = inspect.unwrap(getattr(function, "func", function))  # of a partial, too
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
        for value in _referred_to(one):
            if isinstance(value, StateGraph | Pregel):
                return True
            if isinstance(value, type) and isinstance(vars(value).get("__init__"), FunctionType):
                value = vars(value)["__init__"]  # noqa: PLW2901 - what calling the class runs
            if isinstance(value := inspect.unwrap(value) if callable(value) else value, FunctionType):
                waiting.append(value)
    return False


def _referred_to(function: FunctionType) -> Iterator[Any]:
    yield from closure_values(function)
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield function.__globals__[name]


def _returns_graph(function: Any) -> bool:
    annotation = getattr(function, "__annotations__", {}).get("return")
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return "Graph" in name or "Pregel" in name
