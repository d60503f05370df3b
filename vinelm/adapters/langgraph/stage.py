"""The node that runs one stage: prefix in, model chosen, function called, invocation recorded, entry written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from vinelm.adapters.langgraph.channel import PATH_KEY, PathValue
from vinelm.adapters.langgraph.invocation import Host, invoking_in_graph
from vinelm.adapters.langgraph.signature import Asked
from vinelm.adapters.langgraph.state_types import announced, own_state
from vinelm.adapters.langgraph.updates import with_entry
from vinelm.errors import WorkflowError

STAGE_MARK = "__vinelm_stage__"
"""Attribute of a wrapped node's function: the stage's name."""


def make_stage(host: Host, name: str, fn: Callable[..., Any], asked: Asked, state_type: type) -> Callable[..., Any]:
    """A LangGraph node; async if ``fn`` is. A plain function without ``__wrapped__``: LangGraph reads its signature."""

    def node(state: Any, config: RunnableConfig, runtime: Runtime[Any]) -> Any:
        running = _Running(host, name, asked, (state, config, runtime))
        try:
            out = fn(running.state, **running.arguments)
        except BaseException as error:
            running.invoking.failed(error)
            raise
        return running.done(out)

    async def anode(state: Any, config: RunnableConfig, runtime: Runtime[Any]) -> Any:
        running = _Running(host, name, asked, (state, config, runtime))
        try:
            out = await fn(running.state, **running.arguments)
        except BaseException as error:
            running.invoking.failed(error)
            raise
        return running.done(out)

    wrapped: Callable[..., Any] = anode if asked.is_async else node
    wrapped.__name__ = wrapped.__qualname__ = getattr(fn, "__name__", name)
    wrapped.__doc__ = getattr(fn, "__doc__", None)
    wrapped.__annotations__ = {"state": announced(state_type), "config": RunnableConfig, "runtime": Runtime}
    if asked.returns is not None:
        wrapped.__annotations__["return"] = asked.returns
    setattr(wrapped, STAGE_MARK, name)
    return wrapped


class _Running:
    """One call of the node: the state as the user's code knows it, and the invocation."""

    __slots__ = ("arguments", "entry", "invoking", "stage", "state")

    def __init__(self, host: Host, stage: str, asked: Asked, given: tuple[Any, RunnableConfig, Runtime[Any]]) -> None:
        state, config, runtime = given
        self.stage = stage
        self.state, carried = own_state(state)
        value = carried if carried is not None else read_path(config, fresh=False)
        self.entry, self.invoking = invoking_in_graph(host, stage, value, config, runtime)
        self.arguments = _arguments(asked, self.invoking.model, config, runtime)

    def done(self, out: Any) -> Any:
        """Record the invocation; the function's update with the path entry."""
        self.invoking.done()
        return with_entry(out, self.entry, self.stage)


def read_path(config: RunnableConfig, *, fresh: bool) -> PathValue | None:
    """The path by LangGraph's own reader, for a state that does not carry it: a Send's argument, an edge's input.

    ``fresh`` includes what the current node has just written. The reader is internal to LangGraph: without it, one line.
    """
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


def _arguments(asked: Asked, model: Any, config: RunnableConfig, runtime: Runtime[Any]) -> dict[str, Any]:
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
