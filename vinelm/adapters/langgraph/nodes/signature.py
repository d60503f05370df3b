"""Analyses a user's function once, when it is wrapped: its parameters, and whether it is the application's own code."""

from __future__ import annotations

import functools
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any, get_args, get_origin, get_type_hints

from langgraph.types import Command

from vinelm.errors import WorkflowError


def is_user_code(module: str, filename: str) -> bool:
    """Return whether code in that module and file is the application's; VineLM's bundled workflows count as applications."""
    if module.partition(".")[0] == "vinelm" and not module.startswith("vinelm.workflows."):
        return False
    return _is_users_file(filename)


def line_of_user() -> str:
    """Return the line of the application's code that is running, as `` (at app.py:7)``; empty if there is none."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        if is_user_code(str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename):
            return f" (at {Path(frame.f_code.co_filename).name}:{frame.f_lineno})"
        frame = frame.f_back
    return ""


def user_place(error: BaseException) -> str | None:
    """Return ``file:line`` of the innermost line of the application's code in the traceback of ``error``; None without one."""
    found = user_line(error)
    return None if found is None else f"{_shown(found[0])}:{found[1]}"


def user_line(error: BaseException) -> tuple[str, int] | None:
    """Return (file, line number) of the innermost line of the application's code in the traceback of ``error``.

    None if the traceback has no such line.
    """
    found: tuple[str, int] | None = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if is_user_code(str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename):
            found = frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return found


def closure_values(function: FunctionType) -> Iterator[Any]:
    """Yield the values in the function's closure, except unassigned variables."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # empty
            yield cell.cell_contents


def _shown(filename: str) -> str:
    path, here = Path(filename), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


@cache
def _is_users_file(filename: str) -> bool:
    if not filename or filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    return not any(path.is_relative_to(folder) for folder in _installed())


@cache
def _installed() -> frozenset[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return frozenset(Path(sysconfig.get_path(name)).resolve() for name in names)


INJECTED = ("model", "config", "runtime", "writer", "store", "previous")
"""Parameters that a stage may have besides its state."""
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class InjectedParameters:
    """The parameters and types of an application's function.

    Attributes:
        names: the parameters of :data:`INJECTED` that the function takes.
        state: the type of the function's state parameter; None if unknown.
        returns: its return type; None if unknown.
        is_async: whether it is a coroutine function.
    """

    names: tuple[str, ...]
    state: type | None
    returns: Any
    is_async: bool


def injected_parameters(fn: Callable[..., Any], label: str, known: tuple[str, ...]) -> InjectedParameters:
    """Return which of the parameters named in ``known`` the application's function ``fn`` takes, with its state type and return
    type.

    Raises:
        WorkflowError: LangGraph or VineLM cannot call ``fn``; the error's message begins with ``label``.
    """
    if not callable(fn):
        raise WorkflowError(f"{label} needs a function, a method or a callable object, not {type(fn).__name__}")
    body = code_of(fn)
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise WorkflowError(f"{label}: a generator function cannot be wrapped: return one update, stream with writer=")
    parameters = [p for p in inspect.signature(fn).parameters.values() if p.kind not in _VARIADIC]
    if not parameters:
        raise WorkflowError(f"{label}: its function takes no state: make the state its first parameter")
    for parameter in parameters[1:]:
        if parameter.name in known and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
            continue
        if parameter.name in known:
            raise WorkflowError(f"{label}: {parameter.name!r} is positional-only: let it be passed by name")
        if parameter.default is inspect.Parameter.empty:
            raise WorkflowError(f"{label}: unknown parameter {parameter.name!r}: it may ask for {', '.join(known)}")
    names = tuple(p.name for p in parameters[1:] if p.name in known and p.kind is not inspect.Parameter.POSITIONAL_ONLY)
    state = _hint(body, parameters[0].name)
    return InjectedParameters(names, state, _hint(body, "return"), inspect.iscoroutinefunction(body))


def is_command(returns: Any) -> bool:
    """Return whether a function is annotated to return LangGraph's ``Command``, alone or among other types."""
    return any(one is Command or get_origin(one) is Command for one in (returns, *get_args(returns)))


def marked(runnable: Any, mark: str) -> Any:
    """Return the attribute named ``mark`` of the function inside a LangGraph runnable; None if VineLM has not marked the
    function.
    """
    functions = (held_attribute(runnable, "func"), held_attribute(runnable, "afunc"))
    return next((found for one in functions if (found := getattr(one, mark, None)) is not None), None)


def held_attribute(runnable: Any, name: str) -> Any:
    """Return the attribute ``name`` from the ``__dict__`` of ``runnable``; None if it is not there.

    Objects that ``runnable`` wraps are not searched.
    """
    return getattr(runnable, "__dict__", {}).get(name)


def code_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that runs when ``fn`` is called, such as a callable object's ``__call__`` or a partial's function."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.isfunction(fn) or inspect.ismethod(fn) or inspect.isbuiltin(fn) or inspect.isclass(fn):
        return fn
    call: Callable[..., Any] = fn.__call__  # type: ignore[operator]
    return call


def _hint(fn: Callable[..., Any], name: str) -> Any:
    """Return the type in an annotation of ``fn``: of the parameter ``name``, or of the result if ``name`` is "return".

    None if there is no such annotation, or if it cannot be resolved. It is resolved alone, since other annotations may need
    imports made only for type checkers.
    """
    raw = getattr(fn, "__annotations__", {}).get(name)
    if raw is None:
        return None

    def probe() -> None: ...

    probe.__annotations__ = {name: raw}
    try:
        return get_type_hints(probe, getattr(inspect.unwrap(fn), "__globals__", {}), include_extras=True)[name]
    except (NameError, AttributeError, TypeError):
        return None
