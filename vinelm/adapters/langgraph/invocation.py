"""One invocation of a stage in progress, whether in a node, an agent or a bare chat model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.errors import GraphBubbleUp

from vinelm.adapters.langgraph.path_channel import Entry
from vinelm.adapters.langgraph.run_registry import GraphRun
from vinelm.errors import CallError, FailureKind
from vinelm.observation import Usage
from vinelm.protocols import CallContext, ChatModelSource, Invocation
from vinelm.telemetry import ObserverGroup

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


class InvocationScope:
    """Makes the chat model, collects the usage of its calls and records the invocation when it ends.

    A context manager: the invocation fails if the block raises.

    Attributes:
        stage: name of the stage.
        path: models of the request's invocations; ends with this invocation's own.
        model: the chat model.

    Args:
        models: makes the chat model.
        observers: notified of begin and end.
        run: the run that the invocation belongs to.
        stage, path: see the attributes.
        limits: fields of the catalog entry to replace, such as ``max_tokens``.
        request_id: the request's id if the caller gave one; goes into the path's entry.
    """

    __slots__ = ("_clock", "_observers", "_request_id", "_run", "_started_s", "_tokens", "_usages", "model", "path", "stage")

    def __init__(
        self,
        models: ChatModelSource,
        observers: ObserverGroup,
        run: GraphRun,
        stage: str,
        path: tuple[str, ...],
        *,
        limits: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> None:
        self.stage, self.path = stage, path
        self._run, self._request_id = run, request_id
        self._observers: ObserverGroup | None = observers if observers.observers else None
        policy = run.policy
        clock = self._clock = policy.clock
        self._usages: list[Usage] = []
        self._tokens: list[Any] = []
        self._started_s = clock.now()
        call = CallContext(
            stage=stage,
            prefix=path,
            clock=clock,
            on_usage=self._usages.append,
            request=policy.request,
            guard=policy.guard,
            on_exchange=self._exchanged if self._observers is not None and observers.hears else None,
        )
        try:
            self.model: BaseChatModel = models.chat_model(path[-1], call, limits)
        except BaseException as error:
            self.failed(error)
            raise
        if self._observers is not None:
            self._tokens = observers.began(stage, path, models.catalog[path[-1]])

    def entry(self) -> Entry:
        """Return the path's entry for the invocation, with the dollars that the run has recorded since its last entry."""
        entry: Entry = {"k": len(self.path) - 1, "stage": self.stage, "model": self.path[-1]}
        if self._request_id is not None:
            entry["request"] = self._request_id
        usd = self._run.take_unwritten_usd()
        if usd:
            entry["usd"] = usd
        return entry

    def __enter__(self) -> InvocationScope:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._record(None, None)
        else:
            self.failed(error)

    def done(self) -> None:
        """Record that the invocation succeeded."""
        self._record(None, None)

    def failed(self, error: BaseException) -> None:
        """Record that it raised. Interrupts and other control flow of LangGraph are no failures: it will be run again."""
        if isinstance(error, GraphBubbleUp):
            if self._observers is not None:
                self._observers.ended(self._tokens, None)
            self._run.policy.interrupted(self.path)
        else:
            self._record(*_failure(error))

    def _exchanged(self, messages: Sequence[BaseMessage], answer: AIMessage | None) -> None:
        if self._observers is not None:
            self._observers.exchanged(self._tokens, messages, answer)

    def _record(self, failure: FailureKind | None, detail: str | None) -> None:
        invocation = Invocation(
            stage=self.stage,
            prefix=self.path,
            latency_s=max(self._clock.now() - self._started_s, 0.0),
            usages=tuple(self._usages),
            failure=failure,
            detail=detail,
        )
        self._run.record(invocation)
        if self._tokens and self._observers is not None:
            self._observers.ended(self._tokens, invocation)


def _failure(error: BaseException) -> tuple[FailureKind, str]:
    """Kind and detail. The text of a foreign exception may hold a prompt or a key, so only its type is kept."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, CallError):
            return cause.kind, str(cause)
        cause = cause.__cause__
    return ("tool" if isinstance(error, Exception) else "unknown"), type(error).__name__
