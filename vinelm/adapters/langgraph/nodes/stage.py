"""The graph node that runs one stage, and writes the stage's update together with its entry in the request's path."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime
from langgraph.types import Command, Send

from vinelm.adapters.langgraph.nodes.signature import InjectedParameters
from vinelm.adapters.langgraph.path.path_channel import PATH_KEY, Entry, Note
from vinelm.adapters.langgraph.path.state_schema import announced, own_state
from vinelm.adapters.langgraph.runs.chat_call import ChatCall, ServesCalls, node_of
from vinelm.adapters.langgraph.runs.invocation import InvocationScope
from vinelm.adapters.langgraph.runs.run_finder import RunFinder
from vinelm.errors import VineLMError, WorkflowError
from vinelm.requests.protocols import CallsInText

STAGE_MARK = "__vinelm_stage__"
"""Attribute of a wrapped node's function: the stage's name."""

NO_CONFIG: RunnableConfig = {}
NO_RUNTIME: Runtime[Any] = Runtime()
"""Default of a node's ``runtime`` parameter: if it is still there, other code than LangGraph has called the node."""


def make_stage(
    finder: RunFinder,
    calls: ServesCalls,
    name: str,
    fn: Callable[..., Any],
    asked: InjectedParameters,
    *,
    state_type: type,
    default: str | None = None,
    eager: Callable[[Any], CallsInText] | None = None,
) -> Callable[..., Any]:
    """Return a LangGraph node that runs ``fn``; it is a coroutine function if ``fn`` is one.

    If the application's own code calls the node, instead of LangGraph, ``fn`` gets the model that the caller passes. If the
    caller passes none, ``fn`` gets the model of a new invocation. The node has no ``__wrapped__``, because LangGraph has to
    read the node's own signature.

    Args:
        finder: begins the invocations that LangGraph asks for.
        calls: begins the invocations that other code asks for.
        name: name of the stage.
        fn: the application's function.
        asked: the parameters that ``fn`` takes.
        state_type: the type of the state that ``fn`` takes.
        default: the model that runs without a plan.
        eager: finds tool calls in the text that the model streams; see :meth:`vinelm.VineLM.stage`.
    """
    others = tuple(one for one in asked.names if one != "model")

    def node(
        state: Any, *more: Any, config: RunnableConfig = NO_CONFIG, runtime: Runtime[Any] = NO_RUNTIME, **given: Any
    ) -> Any:
        # LangGraph always passes its runtime. Without a runtime the function was called by other code, such as a test.
        if runtime is NO_RUNTIME:
            given = given if config is NO_CONFIG else {**given, "config": config}
            if _has_model(fn, more, given):
                return fn(state, *more, **given)
            with node_of(config), ChatCall.begin(calls, name, default=default) as call:
                return None if call.scope.is_skipped else fn(state, *more, model=call.scope.model, **given)
        own, carried = own_state(state, finder.settings.on_error)
        with finder.invoke(name, carried, config, runtime, default=default) as scope:
            scope.eager = None if eager is None else partial(eager, own)
            given = _injected(others, config, runtime) if others else {}
            out = None if scope.is_skipped else fn(own, model=scope.model, **given)
        return _written(finder, out, scope, name)

    async def anode(
        state: Any, *more: Any, config: RunnableConfig = NO_CONFIG, runtime: Runtime[Any] = NO_RUNTIME, **given: Any
    ) -> Any:
        if runtime is NO_RUNTIME:
            given = given if config is NO_CONFIG else {**given, "config": config}
            if _has_model(fn, more, given):
                return await fn(state, *more, **given)
            with node_of(config):
                async with await ChatCall.abegin(calls, name, default=default) as call:
                    return None if call.scope.is_skipped else await fn(state, *more, model=call.scope.model, **given)
        own, carried = own_state(state, finder.settings.on_error)
        async with await finder.ainvoke(name, carried, config, runtime, default=default) as scope:
            scope.eager = None if eager is None else partial(eager, own)
            given = _injected(others, config, runtime) if others else {}
            out = None if scope.is_skipped else await fn(own, model=scope.model, **given)
        return _written(finder, out, scope, name)

    wrapped: Callable[..., Any] = anode if asked.is_async else node
    wrapped.__name__ = wrapped.__qualname__ = getattr(fn, "__name__", name)
    wrapped.__doc__ = getattr(fn, "__doc__", None)
    wrapped.__annotations__ = {"state": announced(state_type), "config": RunnableConfig, "runtime": Runtime}
    if asked.returns is not None:
        wrapped.__annotations__["return"] = asked.returns
    setattr(wrapped, STAGE_MARK, name)
    return wrapped


def _has_model(fn: Callable[..., Any], more: tuple[Any, ...], given: Mapping[str, Any]) -> bool:
    """Return whether a node's caller passes the model, by name or position. Only the application's own code does this, never
    LangGraph.

    ``more`` and ``given`` are the positional and keyword arguments after the state.
    """
    if "model" in given or not more:
        return "model" in given
    return "model" in inspect.signature(fn).bind_partial(None, *more).arguments


def _written(finder: RunFinder, out: Any, scope: InvocationScope, name: str) -> Any:
    """Return ``out``, the result of the function of stage ``name``, plus an entry of the request's path for this invocation.

    ``scope`` is the invocation. The entry is left out if VineLM's own code fails and ``on_error`` is "default".
    """
    try:
        if scope.is_kept_by_run and isinstance(out, Command) and out.graph is not None:
            return out  # leads out of a subgraph, whose channels the outer graph does not know
        return with_entry(out, scope.update(), name)
    except Exception as error:  # the boundary of a stage: the application still gets its update
        if finder.settings.on_error == "raise" or isinstance(error, VineLMError):
            raise
        scope.note_failure("the path's entry", error)
        return out


def _injected(names: tuple[str, ...], config: RunnableConfig, runtime: Runtime[Any]) -> dict[str, Any]:
    """Return the values of the arguments ``names`` that a stage's function takes besides the state and the model.

    Such arguments are the config and the store, for example.
    """
    found: dict[str, Any] = {}
    for name in names:
        if name == "config":
            found[name] = config
        elif name == "runtime":
            found[name] = runtime
        else:
            found[name] = getattr(runtime, "stream_writer" if name == "writer" else name)
    return found


def with_entry(out: Any, written: list[Entry | Note], stage: str) -> Any:
    """Return a single update of the state with a node's result ``out`` and the path's entries ``written``.

    LangGraph then writes both or neither. Raises :class:`WorkflowError` if ``out`` leads to another graph; ``stage`` names the
    node in the message.
    """
    mine = {PATH_KEY: written}
    if out is None:
        return mine
    if isinstance(out, dict):
        return {**out, **mine}
    if isinstance(out, Command):
        return _with_command(out, mine, stage)
    if isinstance(out, Send):
        return Command(update=mine, goto=out)
    if isinstance(out, (list, tuple)):
        for item in out:
            _refuse_parent(item, stage)
        return [*out, Command(update=mine)]
    return [out, Command(update=mine)]


def _with_command(out: Command[Any], mine: dict[str, Any], stage: str) -> Any:
    _refuse_parent(out, stage)
    if out.update is None:
        return replace(out, update=mine)
    if isinstance(out.update, Mapping):
        return replace(out, update={**out.update, **mine})
    return [out, Command(update=mine)]


def _refuse_parent(item: Any, stage: str) -> None:
    if isinstance(item, Command) and item.graph is not None:
        raise WorkflowError(f"stage {stage!r} returned Command(graph=...): a stage must be a node of the root graph")
