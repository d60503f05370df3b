"""One invocation of a stage in progress, whether in a node, an agent or a bare chat model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import fsum
from threading import Lock
from typing import TYPE_CHECKING, Any, SupportsFloat, TypeVar

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.errors import GraphBubbleUp

from vinelm.adapters.calls.app_repeats import app_repeats
from vinelm.adapters.calls.fallback_model import REPEATABLE, FallbackModel, failed_call
from vinelm.adapters.langgraph.accounts.at_once import at_once
from vinelm.adapters.langgraph.path.path_channel import Entry, Note
from vinelm.adapters.langgraph.runs.graph_run import GraphRun
from vinelm.adapters.langgraph.runs.run_context import MOST_PRIORITY
from vinelm.adapters.tools.read_ahead import Ahead
from vinelm.backends.base import bound_instance
from vinelm.backends.remote.call_cache import CachedCalls
from vinelm.errors import CallError, FailureKind
from vinelm.foreign_code import answered
from vinelm.one_process import OneProcess
from vinelm.requests.protocols import CallContext, CallsInText, ChatModelSource, Invocation
from vinelm.rows.observation import Usage
from vinelm.telemetry import ObserverGroup
from vinelm.template.steps import SKIP

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


T = TypeVar("T")


class InvocationScope(OneProcess):
    """One invocation of a stage, as a context manager.

    It makes the stage's chat model, collects the usage of the model's calls, and records the end of the invocation. It works
    with ``with`` and ``async with``; the invocation fails if the block raises. If the run's policy falls back, a failed call is
    recorded with its cost as one attempt, and the next best model makes the next attempt. The path ends with the model that
    answered.

    Attributes:
        stage: name of the stage.
        path: models of the request's invocations; ends with this invocation's model.
        answering: the chat model of the current attempt; not set if the stage is skipped.
        model: the chat model for the stage: ``answering``, or a wrapper that calls it and falls back; not set if the stage is
            skipped.
        is_skipped: whether the stage is skipped, so that its function must not be called.
        eager: parses an answer's text for tool calls while it streams; None if the stage declares no ``eager=``.

    Args:
        models: makes the chat model.
        observers: notified when the invocation begins and ends.
        run: the run that the invocation belongs to.
        limits: fields of the catalog entry to replace, such as ``max_tokens``.
        falls_back: False if the caller repeats failed calls itself.
        notes: outcomes of earlier invocations that the graph's path lacks, to be written together with this invocation.
        ahead: starts tool calls while the model writes them; None starts no tool calls.
        own: the application's own chat model (:class:`~vinelm.adapters.langchain.own_model.OwnModel`) through which the call is
            made; None if there is none.
        equal: looks up answers of equal calls; None calls the model every time.
        priority: the stage's priority, added to the request's priority.
    """

    __slots__ = (
        "_ahead",
        "_equal",
        "_limits",
        "_lock",
        "_models",
        "_notes",
        "_observers",
        "_own",
        "_priority",
        "_recorded",
        "_run",
        "_started_s",
        "_tokens",
        "_tried",
        "_usages",
        "answering",
        "eager",
        "is_skipped",
        "model",
        "path",
        "stage",
    )

    def __init__(
        self,
        models: ChatModelSource,
        observers: ObserverGroup,
        run: GraphRun,
        stage: str,
        path: tuple[str, ...],
        *,
        limits: Mapping[str, Any] | None = None,
        falls_back: bool = True,
        notes: Sequence[Note] = (),
        ahead: Ahead | None = None,
        own: Any = None,
        equal: CachedCalls | None = None,
        priority: float = 0.0,
    ) -> None:
        self.stage, self._own = stage, own
        self._equal = equal
        self._priority = min(max(run.context.priority + priority, -MOST_PRIORITY), MOST_PRIORITY)
        self._ahead = ahead if ahead is not None and ahead.tools else None
        self._notes = notes
        self._run, self._models, self._limits = run, models, limits
        self._observers: ObserverGroup | None = observers if observers.observers else None
        self._usages: list[Usage] = []  # of all attempts: a call of the last one may end after the next has begun
        self._recorded = 0
        self._tried: set[str] = {SKIP}  # nothing is left out because a model failed
        self._lock = Lock()
        self.eager: Callable[[], CallsInText] | None = None
        self.answering: BaseChatModel
        self.model: BaseChatModel
        self._begin(path)
        if not self.is_skipped:
            self.model = bound_instance(FallbackModel, self) if falls_back and run.falls_back else self.answering

    def _begin(self, path: tuple[str, ...]) -> None:
        """Begin an attempt with the last model of ``path``."""
        run = self._run
        self.path = path
        self.is_skipped = path[-1] == SKIP  # kept, not computed where the node asks: there nothing of ours may fail
        self._tokens: list[Any] = []
        self._started_s = run.clock.now()
        hears = bool(self._observed(lambda told: told.hears))
        on_gate: Callable[..., None] | None = None
        priority: SupportsFloat = self._priority
        with run.noting("the fleet", path[:-1], self.stage):
            told, standing = run.policy.on_gate, run.policy.standing
            on_gate = None if told is None else _surviving(told, path)
            priority = priority if standing is None else standing(self.stage, self._priority)
        key = conversation = ""
        with run.noting("the request's name", path[:-1], self.stage):
            key, conversation = run.key, run.conversation
        call = CallContext(
            stage=self.stage,
            prefix=path,
            clock=run.clock,
            on_usage=self._usages.append,
            request=run.policy.request,
            guard=run.guard,
            on_exchange=self._exchanged if hears else None,
            on_gate=on_gate,
            priority=priority,
            on_tool_call=None if self._ahead is None else self._ahead.asked_early,
            on_text=None if self._ahead is None else self._hearing,
            key=key,
            conversation=conversation,
            own=self._own,
            equal=self._equal,
        )
        try:
            if not self.is_skipped:
                self.answering = self._models.chat_model(path[-1], call, self._limits)
        except BaseException as error:
            self.failed(error)
            raise
        self._tokens = self._observed(self._told_of) or []

    def _hearing(self) -> Callable[[str], None] | None:
        """Return a function that gets each piece of an answer's text and starts the tool calls in it.

        None if the stage declares no ``eager=`` or no tool can start early.
        """
        return None if self._ahead is None or self.eager is None else self._ahead.hearing(self.eager)

    def fall_back(self, model: BaseChatModel, error: CallError) -> bool:
        """Begin an attempt with another model after ``model`` has failed; return False if the error should be raised.

        Parallel calls fall back together: after the first failure all of them use the new model.
        """
        with self._lock:
            if self.answering is not model:
                return True
            goes_on = False
            with self.noting("the fallback", passes=(CallError,)):  # the application has to see the failed call
                # A replacement may cost more than the cap leaves, while a third model fits.
                may_go_on = error.kind in REPEATABLE or (error.kind == "budget" and len(self._tried) > 1)
                goes_on = may_go_on and not app_repeats(error) and self._next_attempt(error)
            return goes_on

    def _next_attempt(self, error: CallError) -> bool:
        """Record the failed attempt, begin the next attempt and return True; return False if no model is left to try."""
        self._tried.add(self.path[-1])
        failed = self._ended(error.kind, str(error))
        path = self._run.fall_back(failed, self._tried)
        if path is None:
            return False
        # Later reports of this attempt's calls belong to the next attempt: they are paid all the same.
        self._recorded += len(failed.usages)
        self._tell_end(failed)
        self._begin(path)
        return True

    @property
    def is_kept_by_run(self) -> bool:
        """Whether the run keeps the request's path in memory, because the graph's state cannot store all of it."""
        return self._run.places is not None

    @property
    def usages(self) -> tuple[Usage, ...]:
        """The usages (tokens and costs) reported so far, including those of failed attempts."""
        return tuple(self._usages)

    def note_failure(self, what: str, error: Exception) -> None:
        """Record in the trace that ``what``, a part of VineLM, failed."""
        self._run.note_failure(what, error, self.path[:-1], self.stage)

    def noting(
        self, what: str, *, may_raise: bool = True, passes: tuple[type[Exception], ...] = ()
    ) -> AbstractContextManager[None]:
        """Catch errors of VineLM's own code in the block and record them in the trace, as :meth:`GraphRun.noting` does.

        Errors are raised instead if their type is in ``passes``, or if failures are configured to be raised and ``may_raise``
        is true.
        """
        return self._run.noting(what, self.path[:-1], self.stage, may_raise=may_raise, passes=passes)

    def entry(self) -> Entry:
        """Return the path's entry for the invocation, with the run's cost since the previous entry."""
        entry: Entry = {"k": len(self.path) - 1, "stage": self.stage, "model": self.path[-1]}
        if self._run.context.request_id is not None:
            entry["request"] = self._run.context.request_id
        usd = self._run.take_unwritten_usd()
        if usd:
            entry["usd"] = usd
        if self._run.request_account is not None:
            entry["account"] = self._run.request_account.key
        if assigned := self._run.policy.assigned.kept:
            entry["assigned"] = assigned
        if self._run.policy.kind is not None:
            entry["kind"] = self._run.policy.kind
        return entry

    @property
    def is_unplanned(self) -> bool:
        """Whether the invocation's run uses default models and no template is known."""
        return self._run.is_unplanned

    def update(self) -> list[Entry | Note]:
        """Return what the invocation's node writes to the path channel: its own entry, and notes with outcomes of earlier
        invocations.
        """
        return [*self._notes, self.entry()]

    def __enter__(self) -> InvocationScope:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self.done() if error is None else self.failed(error)
        finally:
            self.settle()

    async def __aenter__(self) -> InvocationScope:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self.done() if error is None else self.failed(error)
        finally:
            await self.asettle()

    def settle(self) -> None:
        """Write the real cost of the calls to the request's account; if that fails, their maximum cost stays recorded."""
        account = self._run.request_account
        if account is not None:
            with self._run.noting("the request's account", self.path[:-1], self.stage, may_raise=False):
                if not account.is_settled:
                    at_once(account.settle(is_async=False))

    async def asettle(self) -> None:
        """Write the real cost of the calls, like :meth:`settle`, without blocking the event loop.

        The write finishes even if the caller is cancelled meanwhile.
        """
        account = self._run.request_account
        if account is not None:
            with self._run.noting("the request's account", self.path[:-1], self.stage, may_raise=False):
                if not account.is_settled:
                    await asyncio.shield(account.settle(is_async=True))

    def done(self) -> None:
        """Record that the invocation succeeded."""
        self._record(None, None)

    def failed(self, error: BaseException) -> None:
        """Record that the invocation raised an exception.

        LangGraph's interrupts and other control flow do not count as failures, since the invocation will run again.
        """
        if isinstance(error, GraphBubbleUp):
            self._tell_end(None)
            self._run.interrupted(self.path, fsum(usage.cost_usd for usage in self._usages[self._recorded :]))
        else:
            self._record(*_failure(error))

    def _exchanged(self, messages: Sequence[BaseMessage], answer: AIMessage | None, asked: Mapping[str, Any]) -> None:
        self._observed(lambda told: told.exchanged(self._tokens, messages, answer))

    def _ended(self, failure: FailureKind | None, detail: str | None) -> Invocation:
        return Invocation(
            stage=self.stage,
            prefix=self.path,
            latency_s=max(self._run.clock.now() - self._started_s, 0.0),
            usages=tuple(self._usages[self._recorded :]),
            failure=failure,
            detail=detail,
        )

    def _record(self, failure: FailureKind | None, detail: str | None) -> None:
        invocation, is_recorded = None, False
        with self.noting("record"):
            invocation = self._ended(failure, detail)
            self._run.record(invocation)
            is_recorded = True
        self._tell_end(invocation if is_recorded else None)
        if not is_recorded:
            with self.noting("record", may_raise=False):
                self._run.interrupted(self.path)  # whatever cannot be recorded is under way no longer

    def _tell_end(self, invocation: Invocation | None) -> None:
        if self._tokens:
            self._observed(lambda told: told.ended(self._tokens, invocation))

    def _observed(self, tell: Callable[[ObserverGroup], T]) -> T | None:
        """Call ``tell`` with the observers and return the result; None if there are no observers, or if an observer raises."""
        found: T | None = None
        if self._observers is not None:
            with self.noting("an observer", may_raise=False):
                found = tell(self._observers)
        return found

    def _told_of(self, observers: ObserverGroup) -> list[Any]:
        with self._run.shown():
            return observers.began(self.stage, self.path, self._models.catalog[self.path[-1]])


def _surviving(on_gate: Callable[..., None], path: tuple[str, ...]) -> Callable[..., None]:
    """Return a callback that calls ``on_gate`` with ``path`` and the callback's arguments. Exceptions of ``on_gate`` are
    ignored.

    Backends call the callback when an attempt begins to wait for rate limits, and again when the attempt is sent.
    """

    def gated(*what: Any) -> None:
        answered(partial(on_gate, path, *what), None)

    return gated


def _failure(error: BaseException) -> tuple[FailureKind, str]:
    """Return the failure kind and the detail to record for an exception.

    Only the type of other libraries' exceptions is recorded, since their text may contain a prompt or a key.
    """
    cause: BaseException | None = error
    while cause is not None:
        failed = failed_call(cause)
        if failed is not None:
            return failed.kind, str(failed)
        cause = cause.__cause__
    return ("tool" if isinstance(error, Exception) else "unknown"), type(error).__name__
