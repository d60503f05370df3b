"""The node that runs one stage: prefix in, model chosen, function called, invocation recorded, entry written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime
from langgraph.types import Command, Send

from vinelm.adapters.langgraph.invocation import InvocationHost, InvocationScope, invoking_in_graph
from vinelm.adapters.langgraph.path_channel import PATH_KEY, Entry, PathValue, channel_of
from vinelm.adapters.langgraph.signature import CallOptions
from vinelm.adapters.langgraph.state_schema import announced, own_state
from vinelm.errors import WorkflowError

STAGE_MARK = "__vinelm_stage__"
"""Attribute of a wrapped node's function: the stage's name."""


def make_stage(
    host: InvocationHost, name: str, fn: Callable[..., Any], asked: CallOptions, state_type: type
) -> Callable[..., Any]:
    """A LangGraph node; async if ``fn`` is. A plain function without ``__wrapped__``: LangGraph reads its signature."""

    def node(state: Any, config: RunnableConfig, runtime: Runtime[Any]) -> Any:
        own, carried = own_state(state)
        entry, invoking = _invoking(host, name, carried, config, runtime)
        with invoking:
            out = fn(own, **_arguments(asked, invoking.model, config, runtime))
        return with_entry(out, entry, name)

    async def anode(state: Any, config: RunnableConfig, runtime: Runtime[Any]) -> Any:
        own, carried = own_state(state)
        entry, invoking = _invoking(host, name, carried, config, runtime)
        with invoking:
            out = await fn(own, **_arguments(asked, invoking.model, config, runtime))
        return with_entry(out, entry, name)

    wrapped: Callable[..., Any] = anode if asked.is_async else node
    wrapped.__name__ = wrapped.__qualname__ = getattr(fn, "__name__", name)
    wrapped.__doc__ = getattr(fn, "__doc__", None)
    wrapped.__annotations__ = {"state": announced(state_type), "config": RunnableConfig, "runtime": Runtime}
    if asked.returns is not None:
        wrapped.__annotations__["return"] = asked.returns
    setattr(wrapped, STAGE_MARK, name)
    return wrapped


def _invoking(
    host: InvocationHost, stage: str, carried: PathValue | None, config: RunnableConfig, runtime: Runtime[Any]
) -> tuple[Entry, InvocationScope]:
    value = carried if carried is not None else read_path(config, fresh=False)
    return invoking_in_graph(host, stage, value, config, runtime)


def read_path(config: RunnableConfig, *, fresh: bool) -> PathValue | None:
    """The path for a state that does not carry it: a thread's first, a Send's argument, an edge's input.

    ``fresh`` includes what the current node has just written: only LangGraph's own reader knows that. It is internal: without
    it, one line.
    """
    if not fresh:
        channel = channel_of(config)
        if channel is not None:
            return channel.get() if channel.path else None
    read = config.get("configurable", {}).get("__pregel_read")
    if read is None:
        raise WorkflowError("this LangGraph gives no reader for a stage behind a Send: use one that VineLM was tested with")
    try:
        values: Mapping[str, Any] = read([PATH_KEY], fresh)
    except KeyError:
        raise WorkflowError(
            "the graph lacks VineLM's channel: leave input_schema= out of add_node and give the type to vine.stage(..., state=)"
        ) from None
    return values.get(PATH_KEY)


def _arguments(asked: CallOptions, model: Any, config: RunnableConfig, runtime: Runtime[Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name in asked.names:
        if name == "model":
            arguments[name] = model
        elif name == "config":
            arguments[name] = config
        elif name == "runtime":
            arguments[name] = runtime
        else:
            arguments[name] = getattr(runtime, "stream_writer" if name == "writer" else name)
    return arguments


def with_entry(out: Any, entry: Entry, stage: str) -> Any:
    """``out`` and the entry as one update of one node, so that LangGraph writes both or neither."""
    mine = {PATH_KEY: [entry]}
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
