"""The node that runs one stage: prefix in, model chosen, function called, invocation recorded, entry written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime

from vinelm.adapters.langgraph.channel import PATH_KEY, Entry, PathValue, models_of, starts_anew
from vinelm.adapters.langgraph.runs import Run
from vinelm.adapters.langgraph.signature import Asked
from vinelm.adapters.langgraph.state_types import announced, own_state
from vinelm.adapters.langgraph.updates import with_entry
from vinelm.errors import CallError, FailureKind, WorkflowError
from vinelm.observation import Usage
from vinelm.protocols import CallContext, Invocation

STAGE_MARK = "__vinelm_stage__"
"""Attribute of a wrapped node's function: the stage's name."""


class StageHost(Protocol):
    """What a node needs of its control."""

    def run_of(self, runtime: Runtime[Any]) -> Run:
        """The run that a node belongs to."""

    def chat_model(self, name: str, call: CallContext) -> Any:
        """A chat model of the catalog for one invocation."""


def make_stage(host: StageHost, name: str, fn: Callable[..., Any], asked: Asked, state_type: type) -> Callable[..., Any]:
    """A LangGraph node; async if ``fn`` is. A plain function without ``__wrapped__``: LangGraph reads its signature."""

    def node(state: Any, config: RunnableConfig, runtime: Runtime[Any]) -> Any:
        running = _Running(host, name, asked, (state, config, runtime))
        try:
            out = fn(running.state, **running.arguments)
        except BaseException as error:
            running.failed(error)
            raise
        return running.done(out)

    async def anode(state: Any, config: RunnableConfig, runtime: Runtime[Any]) -> Any:
        running = _Running(host, name, asked, (state, config, runtime))
        try:
            out = await fn(running.state, **running.arguments)
        except BaseException as error:
            running.failed(error)
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
    """One invocation under way."""

    __slots__ = ("arguments", "clock", "entry", "policy", "prefix", "stage", "started", "state", "usages")

    def __init__(self, host: StageHost, stage: str, asked: Asked, given: tuple[Any, RunnableConfig, Runtime[Any]]) -> None:
        state, config, runtime = given
        _refuse_subgraph(stage, runtime)
        run = host.run_of(runtime)
        self.state, carried = own_state(state)
        value = carried if carried is not None else read_path(config, fresh=False)
        request_id = run.context.request_id
        anew = starts_anew(value, stage, run.policy.template, request_id)
        before = () if anew else models_of(value)
        step = config.get("metadata", {}).get("langgraph_step", len(before))
        model = run.decide(step, stage, before)
        self.entry: Entry = {"k": len(before), "stage": stage, "model": model}
        if request_id is not None:
            self.entry["request"] = request_id
        self.stage, self.prefix, self.policy = stage, (*before, model), run.policy
        self.usages: list[Usage] = []
        self.clock = run.policy.clock
        self.started = self.clock.now()
        call = CallContext(
            stage=stage, prefix=self.prefix, clock=self.clock, on_usage=self.usages.append, request=run.policy.request
        )
        self.arguments = _arguments(asked, host.chat_model(model, call), config, runtime)

    def done(self, out: Any) -> Any:
        """Record the invocation; the function's update with the path entry."""
        self._record(None, None)
        return with_entry(out, self.entry, self.stage)

    def failed(self, error: BaseException) -> None:
        """Record the failure. Interrupts and other control flow of LangGraph are none."""
        if not isinstance(error, GraphBubbleUp):
            self._record(*_failure(error))

    def _record(self, failure: FailureKind | None, detail: str | None) -> None:
        self.policy.record(
            Invocation(
                stage=self.stage,
                prefix=self.prefix,
                latency_s=max(self.clock.now() - self.started, 0.0),
                usages=tuple(self.usages),
                failure=failure,
                detail=detail,
            )
        )


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


def _refuse_subgraph(stage: str, runtime: Runtime[Any]) -> None:
    info = runtime.execution_info
    if info is not None and "|" in info.checkpoint_ns:
        raise WorkflowError(
            f"stage {stage!r} runs inside a subgraph: its path would be lost there, so make it a node of the root graph"
        )


def _failure(error: BaseException) -> tuple[FailureKind, str]:
    """Kind and detail. The text of a foreign exception may hold a prompt or a key, so only its type is kept."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, CallError):
            return cause.kind, str(cause)
        cause = cause.__cause__
    return ("tool" if isinstance(error, Exception) else "unknown"), type(error).__name__
