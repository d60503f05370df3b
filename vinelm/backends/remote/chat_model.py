"""The chat model of remote providers: connects LangChain with a provider's transport, synchronously and asynchronously."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from vinelm.backends.base import BoundChatModel, estimate_tokens, langsmith_names
from vinelm.backends.limits.replica_gate import ReplicaPermit
from vinelm.backends.remote.call_meter import MeteredCall
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.retry import BILLED_ATTEMPTS, AttemptFailed, own_failure, unforeseen
from vinelm.backends.remote.transport import AttemptBound, CallBinding, Transport, TransportRequest
from vinelm.backends.structured_output import TAKES_FORMAT, Structured
from vinelm.catalog import Model, ReplicaGroup
from vinelm.catalog.model import entries_of
from vinelm.clock import WallClock
from vinelm.errors import FailureKind, VineLMError
from vinelm.money.guard_pair import aauthorized
from vinelm.money.spend_guard import OWED
from vinelm.money.stated_tokens import asks_for_an_hour
from vinelm.prompts.cache_points import PromptCall
from vinelm.prompts.shape import shape_of
from vinelm.requests.protocols import CallContext, CallPermit, RateLimiter, RatePermit
from vinelm.rows.observation import Usage

REPLICA_FAULTS = frozenset[FailureKind]({"rate_limit", "server", "timeout"})
"""Failures after which another replica is preferred."""


class RemoteChatModel(BoundChatModel):
    """A LangChain chat model on a remote provider. Spends money.

    Reports exactly one :class:`~vinelm.rows.observation.Usage` per call, also when it fails
    (:class:`~vinelm.errors.CallError`) or
    when its stream is abandoned. A failed attempt is repeated as :mod:`~vinelm.backends.remote.retry` says; a stream
    only as long as the caller has seen nothing of it.
    """

    @property
    def _llm_type(self) -> str:
        return f"vinelm-{self.binding.model.provider}"

    @property
    def model_name(self) -> str | None:
        """The provider's name of the model, by which LangChain's agents know that it takes a schema; None if it takes none."""
        model: Model = self.binding.model
        return model.model_id if model.provider in TAKES_FORMAT else None

    def output_options(self, asked: Structured) -> Mapping[str, Any] | None:
        """See :meth:`vinelm.backends.remote.transport.Transport.output_options`."""
        bound: CallBinding = self.binding
        return bound.transport.output_options(bound.model, asked)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        bound, request, metered = self._prepare(messages, stop, kwargs)
        for _ in self._deltas(bound, request, metered, is_handed_out=False):
            pass
        return self._result(metered)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        bound, request, metered = self._prepare(messages, stop, kwargs)
        async with aclosing(self._adeltas(bound, request, metered, is_handed_out=False)) as deltas:
            async for _ in deltas:
                pass
        return self._result(metered)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        bound, request, metered = self._prepare(messages, stop, kwargs, is_streamed=True)
        with closing(self._deltas(bound, request, metered, is_handed_out=True)) as deltas:
            for delta in deltas:
                yield ChatGenerationChunk(message=delta.chunk())
        yield ChatGenerationChunk(message=metered.answer.last_chunk(self._told_name))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        bound, request, metered = self._prepare(messages, stop, kwargs, is_streamed=True)
        async with aclosing(self._adeltas(bound, request, metered, is_handed_out=True)) as deltas:
            async for delta in deltas:
                yield ChatGenerationChunk(message=delta.chunk())
        yield ChatGenerationChunk(message=metered.answer.last_chunk(self._told_name))

    # -- one call, sync and async ---------------------------------------------------------------------------------

    def _deltas(
        self, bound: CallBinding, request: TransportRequest, metered: MeteredCall, *, is_handed_out: bool
    ) -> Generator[Delta]:
        """Make the call; yields the deltas of the answer if they are handed out, else nothing."""
        sleep = bound.call.clock.sleep
        with _Account(bound, metered, request) as account:
            for entry in entries_of(bound.model):
                bound.transport.connect(entry)
            for attempt in bound.policy.sync(metered.may_repeat, sleep):
                account.wait()
                limiter, prompt = _admission(bound, request)
                with (
                    limiter.admit(_tokens(bound.model, request), sleep, bound.call.priority) as ticket,
                    account.attempt(ticket),
                    closing(bound.transport.send(_served_by(bound.model, ticket), _marked(bound, request, prompt))) as deltas,
                ):
                    for delta in deltas:
                        metered.see(delta)
                        prompt.begun()
                        if is_handed_out and delta.is_token:
                            metered.hand_out()
                            yield delta
                with attempt:
                    account.raise_attempt()
        account.raise_call()

    async def _adeltas(
        self, bound: CallBinding, request: TransportRequest, metered: MeteredCall, *, is_handed_out: bool
    ) -> AsyncGenerator[Delta]:
        sleep = _sleeper(bound.call)
        async with _Account(bound, metered, request) as account:
            for entry in entries_of(bound.model):
                await bound.transport.aconnect(entry)
            async for attempt in bound.policy.asynchronous(metered.may_repeat, sleep):
                account.wait()
                limiter, prompt = _admission(bound, request)
                async with limiter.aadmit(_tokens(bound.model, request), sleep, bound.call.priority) as ticket:
                    with account.attempt(ticket):
                        sent = bound.transport.asend(_served_by(bound.model, ticket), _marked(bound, request, prompt))
                        async with aclosing(_within(bound.model.timeout_s, sent)) as deltas:
                            async for delta in deltas:
                                metered.see(delta)
                                prompt.begun()
                                if is_handed_out and delta.is_token:
                                    metered.hand_out()
                                    yield delta
                with attempt:
                    account.raise_attempt()
        account.raise_call()

    def _prepare(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, kwargs: Mapping[str, Any], *, is_streamed: bool = False
    ) -> tuple[CallBinding, TransportRequest, MeteredCall]:
        """The call, and how it is made. ``is_streamed``: the caller asks for a stream."""
        bound: CallBinding = self.binding
        options = dict(kwargs) if stop is None else {**kwargs, "stop": stop}
        if bound.call.on_prompt is not None:
            bound.call.on_prompt(messages, options.get("tools") or ())
        if bound.priority_sign and (priority := float(bound.call.priority)):
            options.setdefault("priority", bound.priority_sign * round(priority))
        request = bound.transport.request(bound.model, messages, options, is_streamed=is_streamed or bound.streams)
        if bound.chosen is not None:
            bound = bound.chosen(request)
            request = bound.transport.request(bound.model, messages, options, is_streamed=is_streamed or bound.streams)
        metered = MeteredCall(
            model=bound.model,
            context=bound.call,
            policy=bound.policy,
            finish_failures=bound.transport.finish_failures,
            messages=messages,
            prompt_chars=request.prompt_chars,
            is_streamed=request.is_streamed,
            bound=cache(lambda: bound_of(bound.transport, bound.model, request.body)),
            list_price=bound.list_price,
        )
        return bound, request, metered

    def _result(self, metered: MeteredCall) -> ChatResult:
        message = metered.answer.message(self._told_name)
        return ChatResult(generations=[ChatGeneration(message=message)], llm_output={"model_name": self._told_name})

    @property
    def _told_name(self) -> str:
        """The name of the model in answers: the provider's, by which tracers know its price, as LangChain's own models say."""
        return langsmith_names(self.binding.model)[1]


class _Account:
    """One call: authorized before it starts, its usage reported and its permit settled exactly once, however it ends.

    The SDK's exceptions hold the request: headers, prompt and answer. So they are translated where they are caught, and
    :class:`~vinelm.errors.CallError` is raised outside of any handler, without cause or context.
    """

    def __init__(self, bound: CallBinding, metered: MeteredCall, request: TransportRequest) -> None:
        self._bound = bound
        self._metered = metered
        self._request = request
        self._permit: CallPermit | None = None
        self._last: AttemptFailed | None = None

    def wait(self) -> None:
        """Tell who asks that an attempt begins to wait for the rate limits."""
        if self._bound.call.on_gate is not None:
            self._bound.call.on_gate(True)

    @contextmanager
    def attempt(self, ticket: RatePermit) -> Iterator[None]:
        """Run one attempt: keeps its failure for :meth:`raise_attempt` and settles its tokens with the rate limits."""
        self._last = None
        if self._bound.call.on_gate is not None:
            self._bound.call.on_gate(False, *([ticket.engine] if isinstance(ticket, ReplicaPermit) else []))
        self._metered.begin()
        try:
            yield
            self._metered.check()
        except Exception as error:
            self._last = self._failed(error)
        finally:
            self._metered.end(self._last)
            ticket.settle(self._metered.tokens)
            if isinstance(ticket, ReplicaPermit):
                ticket.ended(failed=self._last is not None and self._last.kind in REPLICA_FAULTS)

    def _failed(self, error: Exception) -> AttemptFailed | None:
        """Translate what an attempt raised; None if the answer is complete nevertheless."""
        if isinstance(error, VineLMError):  # of this side, or of a model inside
            self._last = AttemptFailed("unknown", "not the model's", may_be_billed=self._metered.answer.has_begun)
            raise error
        failed = own_failure(error) or self._bound.transport.failed(error) or unforeseen(error)
        if not self._metered.survives(failed):
            return failed
        try:
            self._metered.check()
        except AttemptFailed as failed_check:
            return failed_check
        return None

    def raise_attempt(self) -> None:
        """Raise the failure of the last attempt, if it failed."""
        if self._last is not None:
            raise self._last
        self._metered.is_complete = True

    def raise_call(self) -> None:
        """Raise the failure of the call, if it failed."""
        if self._last is not None:
            raise self._metered.error(self._last)

    def __enter__(self) -> _Account:
        if self._bound.call.guard is not None:
            with self._owed():
                self._permit = self._bound.call.guard.authorize(self._upper_usd())
        return self

    async def __aenter__(self) -> _Account:
        if self._bound.call.guard is not None:
            with self._owed():
                self._permit = await aauthorized(self._bound.call.guard, self._upper_usd())
        return self

    @contextmanager
    def _owed(self) -> Iterator[None]:
        token = OWED.set(self._bound.is_owed)
        try:
            yield
        finally:
            OWED.reset(token)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        return self.__exit__(kind, error, trace)

    def _upper_usd(self) -> float:
        attempts = BILLED_ATTEMPTS if self._bound.list_price is None else 1  # a call in a batch is not repeated
        return attempts * self._metered.bound().usd(self._bound.model.price)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        is_ours = isinstance(error, AttemptFailed)
        failure: FailureKind | None = error.kind if isinstance(error, AttemptFailed) else None
        if isinstance(error, Exception) and not is_ours:
            failure = "unknown"
        try:
            self._report(self._metered.usage(failure))
        finally:
            if self._permit is not None:
                self._permit.close()
        return is_ours

    def _report(self, usage: Usage) -> None:
        if self._permit is not None:
            self._permit.settle(usage)
        call = self._bound.call
        call.on_usage(usage)
        if call.on_exchange is not None:
            answer = self._metered.answer
            call.on_exchange(self._metered.messages, answer.message(usage.model) if answer.has_begun else None)


def _served_by(model: Model, ticket: RatePermit) -> Model:
    """The entry that an admitted attempt is sent to."""
    return model.replica(getattr(ticket, "replica", 0)) if isinstance(model, ReplicaGroup) else model


def bound_of(transport: Transport, model: Model, body: Mapping[str, Any]) -> AttemptBound:
    """Return the most tokens that one attempt can cost, wherever its cache points will be."""
    bound = replace(transport.attempt_bound(body), asks_for_an_hour=asks_for_an_hour(body))
    return bound if model.cache_points == "off" else replace(bound, writes_cache=True)


def _admission(bound: CallBinding, request: TransportRequest) -> tuple[RateLimiter, PromptCall]:
    """What admits an attempt, and its prompt as far as a cache is asked to keep it."""
    if bound.prompts is not None and (parts := bound.transport.prompt_parts(request.body)):
        takes_marks, may_wait = bound.transport.takes_marks, bound.call.request is not None
        prompt = PromptCall.of(bound.call.stage, shape_of(parts, b""), takes_marks=takes_marks, may_wait=may_wait)
        return bound.prompts.of(prompt), prompt
    return bound.rate_limiter, PromptCall(bound.call.stage)


def _marked(bound: CallBinding, request: TransportRequest, prompt: PromptCall) -> TransportRequest:
    if prompt.first is None:
        return request
    return replace(request, body=bound.transport.marked(bound.model, request.body, prompt.marked_parts, prompt.first))


def _tokens(model: Model, request: TransportRequest) -> int:
    """Tokens that a rate limit is charged until the real counts are known."""
    return estimate_tokens(request.prompt_chars) + model.max_tokens


async def _within(seconds: float, answer: AsyncGenerator[Delta]) -> AsyncGenerator[Delta]:
    """Yield the pieces of an answer; :class:`AttemptFailed` (timeout) if they have no end after ``seconds``.

    Waiting is cancelled, which closes the connection. The answer is closed at the end.
    """
    ends_at = asyncio.get_running_loop().time() + seconds
    async with aclosing(answer):
        while True:
            try:
                async with asyncio.timeout_at(ends_at):
                    delta = await anext(answer, None)
            except TimeoutError:
                break
            if delta is None:
                return
            yield delta
    raise AttemptFailed("timeout", f"no end after {seconds:g} s")


def _sleeper(call: CallContext) -> Callable[[float], Awaitable[None]]:
    """The request's clock, without blocking the event loop where it is real."""
    if isinstance(call.clock, WallClock):
        return asyncio.sleep

    async def sleep(seconds: float) -> None:
        call.clock.sleep(seconds)

    return sleep
