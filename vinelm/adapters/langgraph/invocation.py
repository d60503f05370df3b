"""One invocation of a stage under way, however the application came to it: node, agent, or bare chat model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime

from vinelm.adapters.langgraph.path_channel import Entry, PathValue, is_new_request, models_of
from vinelm.adapters.langgraph.run_registry import GraphRun
from vinelm.catalog import Catalog
from vinelm.errors import CallError, FailureKind, WorkflowError
from vinelm.observation import Usage
from vinelm.protocols import CallContext, Invocation
from vinelm.telemetry import ObserverGroup


class InvocationHost(Protocol):
    """What an invocation needs of its control."""

    catalog: Catalog
    watch: ObserverGroup

    def run_of(self, config: RunnableConfig, runtime: Runtime[Any]) -> GraphRun:
        """The run that a node belongs to."""

    def chat_model(self, name: str, call: CallContext) -> Any:
        """A chat model of the catalog for one invocation."""

    def limited_chat_model(self, name: str, call: CallContext, limits: Mapping[str, Any]) -> Any:
        """The same with another ``max_tokens`` or ``timeout_s`` than its entry has."""


class InvocationScope:
    """Makes the chat model, keeps what its calls used, and tells run, policy and observers how it ended: as a context manager
    by whether its block raises.

    ``prefix`` ends with this invocation's model.
    """

    __slots__ = ("_clock", "_host", "_policy", "_run", "_started", "_tokens", "_usages", "model", "prefix", "stage")

    def __init__(
        self, host: InvocationHost, run: GraphRun, stage: str, prefix: tuple[str, ...], limits: Mapping[str, Any] | None = None
    ) -> None:
        self.stage, self.prefix = stage, prefix
        self._host, self._run = host, run
        policy = self._policy = run.policy
        self._clock = policy.clock
        self._usages: list[Usage] = []
        self._started = self._clock.now()
        call = CallContext(
            stage=stage,
            prefix=prefix,
            clock=self._clock,
            on_usage=self._usages.append,
            request=policy.request,
            guard=getattr(policy, "guard", None),
            on_exchange=self._exchanged if host.watch and host.watch.hears else None,
        )
        name = prefix[-1]
        try:
            self.model = host.limited_chat_model(name, call, limits) if limits else host.chat_model(name, call)
        except BaseException as error:
            self._tokens: list[Any] = []
            self.failed(error)
            raise
        self._tokens = host.watch.began(stage, prefix, host.catalog[name]) if host.watch else []

    def _exchanged(self, messages: Sequence[BaseMessage], answer: AIMessage | None) -> None:
        self._host.watch.exchanged(self._tokens, messages, answer)

    def __enter__(self) -> InvocationScope:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.done()
        else:
            self.failed(error)

    def done(self) -> None:
        """It succeeded."""
        self._record(None, None)

    def failed(self, error: BaseException) -> None:
        """It raised. Interrupts and other control flow of LangGraph are no failures: the invocation will be run again."""
        if isinstance(error, GraphBubbleUp):
            self._host.watch.ended(self._tokens, None)
            interrupted = getattr(self._policy, "interrupted", None)
            if interrupted is not None:
                interrupted(self.prefix)
        else:
            self._record(*_failure(error))
            self._run.note_failure()

    def _record(self, failure: FailureKind | None, detail: str | None) -> None:
        invocation = Invocation(
            stage=self.stage,
            prefix=self.prefix,
            latency_s=max(self._clock.now() - self._started, 0.0),
            usages=tuple(self._usages),
            failure=failure,
            detail=detail,
        )
        self._policy.record(invocation)
        if self._tokens:
            self._host.watch.ended(self._tokens, invocation)


def invoking_in_graph(
    host: InvocationHost,
    stage: str,
    value: PathValue | None,
    config: RunnableConfig,
    runtime: Runtime[Any],
    *,
    continues: bool = False,
    run_is_request: bool = False,
) -> tuple[Entry, InvocationScope]:
    """The invocation of a node of the root graph, and its path entry. ``value`` is the path as the state has it.

    ``continues`` says that the caller knows better than the template: the path goes on. ``run_is_request`` says the same of a
    path that this very run has written.
    """
    _refuse_subgraph(stage, runtime)
    run = host.run_of(config, runtime)
    request_id, before = run.context.request_id, models_of(value)
    is_same_run = before == run.path
    if not (continues or (run_is_request and is_same_run)) and is_new_request(
        value, stage, run.policy.template, request_id, is_same_run=is_same_run
    ):
        before = ()
    model = run.decide(config.get("metadata", {}).get("langgraph_step", len(before)), stage, before)
    entry: Entry = {"k": len(before), "stage": stage, "model": model}
    if request_id is not None:
        entry["request"] = request_id
    return entry, InvocationScope(host, run, stage, (*before, model))


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
