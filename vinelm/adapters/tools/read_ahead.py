"""Stores one run's prefetched reads (calls of read-only tools, made early) until the application asks for them or they are
stale.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, replace
from threading import Lock, RLock
from typing import Any, cast

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool
from pydantic_core import to_jsonable_python

from vinelm.adapters.tools.message_history import Conversation, UserWords
from vinelm.adapters.tools.shadow import Shadow, can_wait, is_same_context, launch
from vinelm.adapters.tools.tool_box import DeclaredTool, ToolBox, has_fields
from vinelm.clock import Clock
from vinelm.foreign_code import answered
from vinelm.requests.protocols import CallGuard, CallsInText
from vinelm.tools.call import CallKind, SessionPart, ToolEvent, canonical_key, is_answered, value_of
from vinelm.tools.declaration import Scope
from vinelm.tools.speculation import Candidates, Speculation, ToolCandidate

NOTHING = Shadow(None)
"""Result placeholder for a call that the application makes itself."""


@dataclass(slots=True, eq=False)
class Read:
    """One call of a tool, prefetched or made by the application.

    Times are seconds of the run's clock; ``ended_s`` is None while the call runs.

    Attributes:
        tool: the tool's name.
        key: a text that is the same for equal calls of the tool, and different for others.
        kind: why the call was made.
        arguments: the call's arguments as JSON values.
        usd: the call's cost in dollars.
        ttl_s: seconds for which the result stays valid; None for no limit.
        shadow: the prefetch in progress or its result; a placeholder for a call by the application.
        of: the tool object that is called, stored here so that its id is not reused; None for an undeclared tool.
        fields: the tool's fields when the prefetch started; None for a call by the application.
        context: the context variables when the prefetch started.
    """

    tool: str
    key: str
    kind: CallKind
    arguments: Mapping[str, Any]
    usd: float
    ttl_s: float | None
    started_s: float
    shadow: Shadow = NOTHING
    ended_s: float | None = None
    of: BaseTool | None = None
    fields: Mapping[str, Any] | None = None
    context: Context | None = None

    def is_stale(self, now_s: float) -> bool:
        """Return whether the result is older than its time to live. Its age counts from the start of the call."""
        return self.ttl_s is not None and now_s - self.started_s >= self.ttl_s

    def stands_for_call_here(self) -> bool:
        """Return whether this result may answer the current call.

        The context variables and the tool's fields must be the same as when the prefetch started.
        """
        if self.of is None or self.fields is None or self.context is None:
            return False
        return has_fields(self.of, self.fields) and is_same_context(self.context, copy_context())


class ReadAhead:
    """Starts and stores the prefetched reads of one run: calls of read-only tools, made before the application asks.
    Thread-safe.

    Each read answers one call of the same tool object; a repeated call runs again. The start and the end of each write make all
    reads stale, and no read starts in between. A tool whose prefetch failed is not prefetched again in this run.

    Attributes:
        speculation: the request's settings for prefetching; None if nothing is prefetched.
        history: this run's calls with their values; kept in memory if calls are predicted, else empty.
        called: the declared tools that the run has called, by name; the value is None if the run has called several tool
            objects with that name.

    Args:
        box: the adapter's declared tools.
        guard: returns the guard that authorizes the run's calls, or None if there is none.
        clock: the run's clock.
        started_at: the request's arrival in seconds of ``clock``.
        request_id: the request's id; empty if it has none.
        session: the name under which calls are recorded; None creates a new name.
        speculation: see the attributes.
    """

    def __init__(
        self,
        box: ToolBox,
        guard: Callable[[], CallGuard | None],
        clock: Clock,
        *,
        started_at: float,
        request_id: str,
        speculation: Speculation | None,
        session: str | None = None,
    ) -> None:
        self.box, self.guard, self.speculation = box, guard, speculation
        self.history: list[ToolEvent] = []
        self._clock, self._started_at, self._request_id = clock, started_at, request_id
        self._reads: dict[tuple[int, str], Read] = {}
        self._dropped: list[Read] = []
        self._writing: set[object] = set()
        self._failed: dict[int, BaseTool] = {}
        self.called: dict[str, DeclaredTool | None] = {}
        self._retried: set[object] = set()
        self._waste_usd = 0.0
        self._seq = 0
        self._run = secrets.token_hex(8)
        self._session = session or f"run-{self._run}"
        self._words = UserWords()
        self._undeclared: dict[object, Read] = {}
        self._has_ended = False
        self._lock = RLock()  # reentrant, as the lock of the box
        self._guessing, self._guesser, self._conversation = Lock(), cast("Candidates | None", None), Conversation()
        box.opened(self)

    def now(self) -> float:
        """Return the current time in seconds of the run's clock."""
        return self._clock.now()

    # -- starting ------------------------------------------------------------------------------------------------

    def speculate(
        self,
        messages: Sequence[BaseMessage] | None,
        choose: Callable[..., Sequence[ToolCandidate]],
        tools: Mapping[str, DeclaredTool],
        fixed: Sequence[ToolCandidate] = (),
        context: Context | None = None,
    ) -> None:
        """Prefetch, while a model is called, the predicted calls that ``choose`` selects, in the order that it returns. Does
        not wait.

        Args:
            messages: the conversation so far; None if only the calls of this run are known.
            choose: takes the predicted calls, and returns those to prefetch: :meth:`vinelm.policies.Policy.speculated` of the
                request's policy, with its first arguments already set.
            tools: the tools that may be prefetched here, by name.
            fixed: calls that nodes of the graph may make next, declared with ``ahead=``.
            context: the context variables with which the prefetches run; None takes a copy of the current ones.
        """
        if self.speculation is None or not tools:
            return
        guesses = [*fixed, *self._guesses(messages)]
        took = getattr(self.box.candidates, "seconds", {})
        found = [
            one._replace(cost_usd=tools[one.tool].says.cost_usd, seconds=tuple(took.get(one.tool, ())))
            for one in guesses
            if one.tool in tools and self._may_start(tools[one.tool], one.arguments)
        ]
        for one in choose(found, self.speculation, wasted_usd=self._waste_usd, running=self._running()):
            self.start(tools[one.tool], one.arguments, "speculated", one.probability, context)

    def _guesses(self, messages: Sequence[BaseMessage] | None) -> list[ToolCandidate]:
        """Return the calls that are predicted from the request's history. Only messages added since the last call of this
        method are read.

        ``messages`` is the conversation so far; with None the calls of this run are the history.
        """
        with self._guessing:  # the calls of a fan-out begin at once; never held while a tool call waits
            if self._guesser is None and self.box.candidates is not None:
                for_run = getattr(self.box.candidates, "for_run", None)
                self._guesser = self.box.candidates if for_run is None else for_run()
            if self._guesser is None:
                return []
            history = list(self.history) if messages is None else self._conversation.history(messages)
            return [ToolCandidate(*one) for one in self._guesser.candidates(history)]

    def _may_start(self, known: DeclaredTool, arguments: Mapping[str, Any]) -> bool:
        """Return whether a predicted call may be prefetched: the tool is read-only, the arguments fit it, and the call is not
        prefetched yet.
        """
        if not known.says.read_only:
            return False
        call = _call_of(known, arguments)
        return call is not None and (id(known), call[2]) not in self._reads

    def start(
        self,
        tool: DeclaredTool,
        arguments: Mapping[str, Any],
        kind: CallKind,
        probability: float,
        context: Context | None = None,
    ) -> bool:
        """Start a prefetch and return True; return False if the prefetch is not allowed or no slot is free.

        Args:
            tool: the object to call, from the graph of this run.
            arguments: JSON values by name, as a model writes them.
            kind: why the prefetch is started.
            probability: the probability that the application makes this call in time, in [0, 1].
            context: the context variables with which the tool runs; None takes a copy of the current ones.
        """
        says, of = tool.says, tool.tool()
        if of is None or not says.read_only or self.speculation is None:
            return False
        call = _call_of(tool, arguments)
        if call is None:
            return False
        args, kwargs, key, plain = call
        usd, unsure_usd = says.cost_usd, (1.0 - probability) * says.cost_usd
        with self._lock:
            if not self._has_place(tool, key) or self._waste_usd + unsure_usd > self.speculation.waste_usd + 1e-12:
                return False
            if not self.box.runs_ahead:
                self.box.count("withheld")
                return False
            begun = copy_context() if context is None else context.copy()
            shadow = launch(tool.code, tool.body_of(of), args, kwargs, usd=usd, guard=self.guard(), context=begun)
            if shadow is None:
                return False
            self._waste_usd += unsure_usd
            read = Read(says.name, key, kind, plain, usd, says.ttl_s, self.now(), shadow, None, of, dict(vars(of)), begun)
            self._reads[id(tool), key] = read
        self.box.count("started")
        shadow.result.add_done_callback(_stamping(read, self._clock))
        return True

    def _has_place(self, tool: DeclaredTool, key: str) -> bool:
        """Return whether this prefetch may start now.

        The run must not have ended, no write may be in flight, and fewer than ``at_once`` prefetches may be running. The same
        call must not be prefetched already. No earlier prefetch of the tool may have failed, or still have been waiting when
        the application's call ended.
        """
        assert self.speculation is not None
        if self._has_ended or self._writing or self.box.writing or (id(tool), key) in self._reads:
            return False
        of = tool.tool()
        if id(of) in self._failed or tool.says.name in self.box.stuck:
            return False
        if any(one.of is of and one.shadow.has_failed for one in self._reads.values()):
            return False
        return self._running() < self.speculation.at_once

    def _running(self) -> int:
        """Return the number of prefetches that still run and that no call of the application has taken.

        Dropped prefetches that still run count, too.
        """
        with self._lock:
            return sum(not one.shadow.result.done() for one in (*self._reads.values(), *self._dropped))

    def has_called(self, tool: DeclaredTool) -> None:
        """Record in ``called`` that the run has called a declared tool. In a run without a graph, only such calls show which
        tools the run uses.
        """
        name = tool.says.name
        self.called[name] = tool if self.called.get(name, tool) is tool else None

    # -- asking --------------------------------------------------------------------------------------------------

    def take(self, tool: DeclaredTool, key: str, *, blocks: bool) -> Read | None:
        """Remove and return the prefetched read that answers a call, whether it has ended or still runs. None if the call must
        be made now.

        Args:
            tool: the object that is called.
            key: the call's key.
            blocks: whether the caller will block its thread until the read has ended.
        """
        self.box.count("reads")
        if not self._reads:
            return None
        with self._lock:
            read = self._reads.pop((id(tool), key), None)
            if read is None:
                return None
            if not read.stands_for_call_here():  # it never will: this tool is not prefetched again in this run
                self._bar(read)
                read = None
            elif read.shadow.has_failed or read.is_stale(self.now()) or (blocks and not can_wait(read.shadow)):
                self._drop(read)
                read = None
            else:
                self.box.count("ready" if read.shadow.result.done() else "joined")
        self._tell_dropped()
        return read

    @property
    def join_s(self) -> float:
        """The maximum time, in seconds, that a call waits for a running prefetch of the same call."""
        return 0.0 if self.speculation is None else self.speculation.join_s

    def left(self, read: Read) -> None:
        """Record that a call has waited ``join_s`` seconds for a read and is now made normally. The tool is not prefetched
        again in this run.
        """
        self.box.count("left")
        with self._lock:
            if read.of is not None:
                self._failed[id(read.of)] = read.of
            self._dropped.append(read)  # it continues: whether it ends before the call does shows what it waits for

    def overtaken(self, read: Read) -> None:
        """Record that the application's call of a tool has ended without the result of ``read``, the prefetch of the same call.

        If ``read`` is still running, it probably waits for a lock that the request holds. Its tool is then not prefetched again
        in this process.
        """
        if not read.shadow.result.done():
            self.box.stuck.add(read.tool)
            read.shadow.cancel()
        self._tell_dropped()

    def used(self, read: Read) -> bool:
        """Record that a call is answered by a read that has ended, and return True; return False if the read has failed."""
        if read.shadow.has_failed:
            with self._lock:
                self._drop(read)
            self._tell_dropped()
            return False
        self._tell(self._event(read, read.shadow.result.result()))
        return True

    def ended(self, read: Read, result: Any, *, is_ok: bool) -> None:
        """Record the end of a call that the application itself made. ``read`` describes the call; ``is_ok`` states whether it
        succeeded.
        """
        self._tell(self._event(read, result, is_ok=is_ok))

    # -- writes, and the end -------------------------------------------------------------------------------------

    def begin_write(self, scope: Scope) -> object:
        """Drop the prefetched reads of this run (scope "session"), or of all runs ("all"), and start none until the write ends.

        Returns a token for :meth:`end_write`.
        """
        token = object()
        for memory in self.box.write_begins(token) if scope == "all" else [self]:
            memory.write_begins(token)
        return token

    def end_write(self, scope: Scope, token: object) -> None:
        """End a write, and drop the prefetched reads of the affected runs once more, since they may be out of date.

        ``scope`` and ``token`` are the argument and the result of :meth:`begin_write`.
        """
        for memory in {self, *(self.box.write_ends(token) if scope == "all" else ())}:
            memory.write_ends(token)

    def write_begins(self, token: object) -> None:
        """Drop this run's prefetched reads, and start none until the writing tool call ``token`` ends; other runs continue."""
        with self._lock:
            self._writing.add(token)
            self._drop_all()
        self._tell_dropped()

    def write_ends(self, token: object) -> None:
        """Drop this run's prefetched reads, because the writing tool call ``token`` has ended.

        New prefetches may start again, unless another call that writes is in flight.
        """
        with self._lock:
            self._writing.discard(token)
            self._drop_all()
        self._tell_dropped()

    def retried(self, attempt: object) -> None:
        """Drop the prefetched reads, because LangGraph runs a node again. Does nothing if it was called before with the same
        ``attempt``.
        """
        with self._lock:
            if attempt in self._retried:
                return
            self._retried.add(attempt)
            self._drop_all()
        self._tell_dropped()

    def end(self) -> None:
        """Drop all reads when the run ends. Running reads are cancelled, or continue without their result being used."""
        with self._lock:
            self._has_ended = True
            self._drop_all()
        self._tell_dropped(is_over=True)

    def _drop_all(self) -> None:
        reads, self._reads = self._reads, {}
        for read in reads.values():
            self._drop(read)

    def _drop(self, read: Read) -> None:
        if read.shadow.has_failed:
            self._bar(read)
            return
        read.shadow.cancel()
        self._dropped.append(read)

    def _bar(self, read: Read) -> None:
        """Drop a read, and do not prefetch its tool again in this run."""
        if read.of is not None:
            self._failed[id(read.of)] = read.of
        read.shadow.cancel()
        self._dropped.append(read)

    # -- telling -------------------------------------------------------------------------------------------------

    def _tell_dropped(self, *, is_over: bool = False) -> None:
        """Record each dropped read that has ended as a prefetch that no call has used.

        ``is_over`` states that the run has ended. The dropped reads that are still running are then recorded, too.
        """
        if not self._dropped:
            return
        with self._lock:
            told = [one for one in self._dropped if is_over or one.shadow.result.done()]
            self._dropped = [one for one in self._dropped if one not in told]
        for one in told:
            self.box.count("unused")
            is_ok = one.shadow.result.done() and not one.shadow.has_failed
            self._tell(self._event(one, one.shadow.result.result() if is_ok else None, is_ok=is_ok, is_used=False))

    def _event(self, read: Read, result: Any, *, is_ok: bool = True, is_used: bool = True) -> ToolEvent | None:
        """Return the event of a call, with arguments and, if it succeeded, its result; None if nothing would receive events.

        Receivers are observers, the predictor and the recorder. ``is_used`` is False for a prefetch that no call has used.
        """
        if not self.box.observers.observers and self.box.candidates is None and self.box.recorder is None:
            return None
        values: dict[str, Any] = {"arguments": read.arguments}
        if is_ok:
            has_artifact = read.of is not None and read.of.response_format == "content_and_artifact"
            values["result"] = _plain(result[0] if has_artifact and isinstance(result, tuple) else result)
        return ToolEvent(
            request_id=self._request_id,
            seq=self._seq,
            tool=read.tool,
            key=read.key,
            is_ok=is_ok,
            kind=read.kind,
            started_s=read.started_s - self._started_at,
            ended_s=(self.now() if read.ended_s is None else read.ended_s) - self._started_at,
            cost_usd=read.usd,
            is_used=is_used,
            **values,
        )

    def _tell(self, event: ToolEvent | None) -> None:
        if event is None:
            return
        with self._lock:
            event = replace(event, seq=self._seq)
            self._seq += 1
            if self.box.candidates is not None and event.is_used:
                self.history.append(event)
        self.box.observers.tool_ended(self._shown(event), self.now() - self._started_at - event.ended_s)
        known = self.box.declared.get(event.tool)
        self._record(event, None if known is None else known.says.read_only)

    def _shown(self, event: ToolEvent) -> ToolEvent:
        """Return the event for observers: without arguments and result, unless values are recorded."""
        return event if self.box.record == "values" else replace(event, arguments=None, result=None)

    # -- recording -----------------------------------------------------------------------------------------------

    @property
    def keeps_words(self) -> bool:
        """Whether the texts of users' messages are recorded."""
        return self.box.recorder is not None and self.box.record == "values"

    def said(self, messages: Sequence[BaseMessage]) -> None:
        """Record those of the user's ``messages`` that are new since the last call of this method, if values are recorded."""
        if not self.keeps_words:
            return
        with self._lock:
            new = self._words.new_in(messages)
        for text in new:
            self._record(text, None)

    def undeclared_begins(self, token: object, tool: str, arguments: Mapping[str, Any]) -> None:
        """Record the start of an undeclared tool's call, if calls are recorded. ``token`` identifies the call when it ends."""
        if self.box.recorder is None:
            return
        with suppress(Exception):  # arguments without a JSON form, or the application's own serializer fails
            plain: dict[str, Any] = to_jsonable_python(dict(arguments))
            key = canonical_key(tool, plain)
            self._undeclared[token] = Read(tool, key, "authoritative", plain, 0.0, None, self.now())

    def undeclared_ends(self, token: object, result: Any, *, is_ok: bool) -> None:
        """Record that the undeclared tool's call ``token`` has ended with ``result``, and whether it succeeded (``is_ok``)."""
        read = self._undeclared.pop(token, None)
        if read is None:
            return
        is_ok = is_ok and is_answered(getattr(result, "status", None), "")
        with self._lock:
            seq, self._seq = self._seq, self._seq + 1
        event = ToolEvent(
            request_id=self._request_id,
            seq=seq,
            tool=read.tool,
            key=read.key,
            is_ok=is_ok,
            started_s=read.started_s - self._started_at,
            ended_s=self.now() - self._started_at,
            arguments=read.arguments,
            result=_plain(result) if is_ok else None,
        )
        self._record(event, None)

    def _record(self, event: str | ToolEvent, is_read: bool | None) -> None:
        """Pass an event to the recorder. An exception of the recorder is ignored, so that it does not fail the call.

        ``is_read`` states whether the tool is declared to be read-only; None if that is unknown or the event is a user's
        message.
        """
        recorder = self.box.recorder
        if recorder is None:
            return
        with suppress(Exception):  # the recorder may be the application's
            if isinstance(event, ToolEvent):  # as the conversation will show it when calls are predicted from it
                is_ok = event.is_ok and is_answered(None, event.result if isinstance(event.result, str) else "")
                event = replace(self._shown(event), is_ok=is_ok)
            recorder(SessionPart(self._session, self._run, event, is_read))


@dataclass(frozen=True, slots=True, eq=False)
class Ahead:
    """The tools that may be prefetched while one model call of a run is in progress.

    Attributes:
        reads: the prefetched reads of the run.
        tools: the tools of the run's graph that may be prefetched, by name.
        context: the context variables of the node that calls the model, in which the tools run.
    """

    reads: ReadAhead
    tools: Mapping[str, DeclaredTool]
    context: Context

    def asked_early(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Prefetch a tool call that a model has written completely, while the rest of the answer still streams. Exceptions are
        ignored unless ``on_error`` is "raise".
        """
        self.reads.box.ours(lambda: self._start(tool, arguments), None)

    def hearing(self, begin: Callable[[], CallsInText]) -> Callable[[str], None]:
        """Return a function that gets an answer's text piece by piece, and starts the tool calls that are complete in it.

        ``begin`` makes the application's parser of the text. If ``begin`` or the parser raises, the exception is ignored unless
        ``on_error`` is "raise". The parser is then not called again for this answer, since it has missed a piece.
        """
        found: list[CallsInText] = []

        def heard(piece: str) -> bool:
            if not found:
                found.append(begin())
            for tool, arguments in found[0](piece):
                self._start(tool, arguments)
            return True

        def hear(piece: str) -> None:
            is_heard = False
            try:
                is_heard = self.reads.box.ours(lambda: heard(piece), False)
            finally:
                if not is_heard:
                    found[:] = [lambda piece: ()]

        return hear

    def _start(self, tool: str, arguments: Mapping[str, Any]) -> None:
        known = self.tools.get(tool)
        if known is not None:
            self.reads.start(known, arguments, "eager", 1.0, self.context)


def _stamping(read: Read, clock: Clock) -> Callable[[Any], None]:
    """Return a callback that records when a read ends. The callback refers only to the read, so that it does not keep the run
    alive.
    """

    def stamp(_: Any) -> None:
        read.ended_s = answered(clock.now, read.ended_s)

    return stamp


_NO_VALUE = object()


def _plain(result: Any) -> Any:
    """Return a tool's result as a JSON value, from which later calls are predicted, or as text if it has no JSON form."""

    def value() -> Any:  # the application's own object and serializer
        content = getattr(result, "content", result)
        return value_of(content) if isinstance(content, str) else to_jsonable_python(content)

    name = type(result).__name__
    found = answered(value, _NO_VALUE)
    return answered(lambda: str(getattr(result, "content", result)), name) if found is _NO_VALUE else found


def _call_of(
    tool: DeclaredTool, arguments: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], str, dict[str, Any]] | None:
    """Return the positional and keyword arguments of the tool's function, the call's key and its arguments as JSON values.

    Returns None if the arguments do not fit the tool or its schema raises; the application gets the error when it makes the
    call. Only ``KeyboardInterrupt`` is raised here.
    """
    try:
        args, kwargs = tool.call_of(arguments)
        return args, kwargs, *tool.key_of(args, kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None
