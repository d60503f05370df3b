"""A chat model that meters the calls of another chat model, and passes requests and answers through unchanged."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing, closing, contextmanager, suppress
from dataclasses import replace
from functools import cache, cached_property
from inspect import signature
from typing import Any, Protocol, SupportsFloat, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableBinding, RunnableMap, RunnableSequence

from vinelm.backends.base import BoundChatModel, bound_instance, estimate_tokens
from vinelm.backends.limits.replica_gate import PromptPriority, ReplicaGate, ReplicaPermit
from vinelm.backends.remote.conversation import must_not_think
from vinelm.backends.remote.equal_calls import answer_in, kept_text
from vinelm.backends.remote.failures import NO_ANSWER, SettingRefused, failed
from vinelm.backends.remote.inner import InnerChat, limit_of, package_of, setting_of
from vinelm.backends.remote.marks import prompt_parts
from vinelm.backends.remote.meter import (
    NOT_REPORTED,
    MeteredCall,
    ModelRequest,
    RawPiece,
    answer_of,
    bound_of,
    chunk_of,
    message_of,
)
from vinelm.backends.remote.provider import CallBinding, Piece, Sends
from vinelm.backends.remote.retry import BILLED_ATTEMPTS, AttemptFailed, RetryPolicy
from vinelm.backends.several import SeveralObjects
from vinelm.catalog import Model, ReplicaGroup
from vinelm.catalog.billed_settings import (
    LIMITS,
    answers_in,
    dearer_in,
    held_in,
    limit_in,
    other_model_in,
    speaks_in,
    stored_in,
)
from vinelm.catalog.model import entries_of
from vinelm.catalog.prices import has_list_price
from vinelm.clock import WallClock
from vinelm.errors import UNSUPPORTED_CALL, ConfigError, FailureKind, VineLMError
from vinelm.money.guard_pair import aauthorized
from vinelm.money.spend_guard import OWED
from vinelm.prompts.cache_points import PromptCall
from vinelm.prompts.radix import points_of
from vinelm.prompts.shape import shape_of
from vinelm.requests.protocols import CallContext, CallPermit, RateLimiter, RatePermit
from vinelm.rows.observation import Usage

REPLICA_FAULTS = frozenset[FailureKind]({"rate_limit", "server", "timeout"})
"""Failures after which another replica is preferred."""
MOST_SETTINGS = 4
"""How many settings in a row a model may refuse within one call."""
LONGEST_WAIT_S = 900.0
"""Seconds to wait for an equal call in progress before making the call anyway."""
SLOT = "id_slot"
"""llama.cpp's name of the slot that a call should take."""
_NO_CACHE = PromptCall("")
"""The description of a prompt that no cache is asked to keep, so that it is sent unchanged."""
_NO_TEMPERATURE = re.compile(r"(^|/)(o\d|gpt-5(?!.*chat))")
"""OpenAI's models that refuse any temperature but the default while they reason, by OpenAI's guide to reasoning models, read in
November 2026. For other models this is learnt from their first refusal."""


class OwnSettings(Protocol):
    """An application's own chat model and the settings that the application gave it.

    Attributes:
        inner: the chat model.
        entry: the name of its catalog entry.
        settings: the settings by name.
        max_tokens: the maximum number of tokens of an answer; None if the application sets no limit.
    """

    inner: InnerChat
    entry: str
    settings: Mapping[str, Any]
    max_tokens: int | None


class RemoteChatModel(BoundChatModel):
    """Wraps a chat model of a LangChain package, and meters its calls: tokens, dollars and seconds. Calls spend money.

    Messages, chunks, tools, schemas and options go to the inner chat model unchanged, and its answers go to the caller
    unchanged. Reports exactly one :class:`~vinelm.rows.observation.Usage` per call, also when it fails
    (:class:`~vinelm.errors.CallError`) or its stream is abandoned. A failed attempt is repeated by the rules of
    :mod:`~vinelm.backends.remote.retry`. A stream is repeated only if the caller has not seen any of it.
    """

    @property
    def _llm_type(self) -> str:
        inner: InnerChat = self.binding.inner
        return inner.given._llm_type

    def __getattr__(self, name: str) -> Any:
        """Forward attributes that only the inner chat model has (``model_name``, ``profile``, ...)."""
        if name.startswith("__") or name == "binding":
            raise AttributeError(name)
        inner: InnerChat = self.binding.inner
        return getattr(inner.given, name)

    def bind_tools(
        self, tools: Any, *, strict: bool | None = None, parallel_tool_calls: bool | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return this model with ``tools`` bound as the inner chat model binds them.

        The arguments ``strict`` and ``parallel_tool_calls`` are left out if the inner chat model's ``bind_tools`` does not have
        them. Raises :class:`ConfigError` if the inner chat model takes no tools.
        """
        bound: CallBinding = self.binding
        known = signature(bound.inner.given.bind_tools).parameters
        more = {"strict": strict, "parallel_tool_calls": parallel_tool_calls}
        kwargs |= {name: value for name, value in more.items() if value is not None and name in known}
        try:
            made: Any = bound.inner.given.bind_tools(tools, **kwargs)
        except NotImplementedError:
            made = None
        if made is None:
            kind = type(bound.inner.given).__name__
            raise ConfigError(
                f"model {bound.model.name!r}: {kind} takes no tools: choose another model for this stage", code=UNSUPPORTED_CALL
            )
        found: Runnable[LanguageModelInput, AIMessage] = self._around(made, "bind_tools")
        return found

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Runnable[LanguageModelInput, Any]:
        """Return a runnable that asks for ``schema`` as the inner chat model does, and whose calls are metered."""
        bound: CallBinding = self.binding
        found: Runnable[LanguageModelInput, Any] = self._around(
            bound.inner.given.with_structured_output(schema, **kwargs), "with_structured_output"
        )
        return found

    def as_owned(self, own: OwnSettings) -> RemoteChatModel:
        """Return this model with the settings that the application gave its own chat model.

        If ``own`` is the application's chat model for this model's catalog entry, the result calls that object itself.
        Otherwise the result takes over those settings that its inner chat model also has. The lower of the application's and
        the catalog entry's limit on an answer's length then applies.
        """
        bound: CallBinding = self.binding
        if bound.model.name == own.entry:
            made = self._with_inner(own.inner)
            return bound_instance(RemoteChatModel, replace(made.binding, own_limit=own.max_tokens), own.inner.kept)
        given = bound.inner.given
        update = {name: one for name, one in own.settings.items() if name in type(given).model_fields}
        made = self if not update else self._with(given.model_copy(update=update))
        if own.max_tokens is None or own.max_tokens >= bound.model.max_tokens:
            return made
        less: CallBinding = made.binding
        model = less.model.model_copy(update={"max_tokens": own.max_tokens})
        return bound_instance(RemoteChatModel, replace(less, model=model), less.inner.kept)

    def _around(self, made: Any, method: str) -> Any:
        """Return a copy of ``made`` whose calls are metered. ``made`` was returned by a method of the inner chat model, such as
        ``bind_tools``.

        ``method`` is the name of that method, for the error message.

        Raises:
            ConfigError: the object contains no chat model.
        """
        met: list[BaseChatModel] = []

        def metered(one: Any) -> Any:
            if isinstance(one, BaseChatModel):
                met.append(one)
                return self._with(one)
            if isinstance(one, RunnableBinding):
                return metered(one.bound).bind(**one.kwargs)
            if isinstance(one, RunnableSequence):
                return RunnableSequence(*map(metered, one.steps))
            if isinstance(one, RunnableMap):  # include_raw
                return RunnableMap({name: metered(step) for name, step in one.steps__.items()})
            return one

        found = metered(made)
        if not met:
            bound: CallBinding = self.binding
            raise ConfigError(
                f"model {bound.model.name!r}: {method} of {type(bound.inner.given).__name__} gives a {type(made).__name__} "
                "without a chat model inside, whose calls nobody can count: bind what it needs with bind()",
                code=UNSUPPORTED_CALL,
            )
        return found

    def _with(self, chat: Any) -> RemoteChatModel:
        bound: CallBinding = self.binding
        if chat is bound.inner.given or isinstance(bound.model, ReplicaGroup):
            return self  # a copy would belong to the first replica only
        # A copy with other settings; its connections are the owner's.
        return self._with_inner(InnerChat(chat, like=bound.inner, entry_max_tokens=bound.inner.entry_max_tokens))

    def _with_inner(self, inner: InnerChat) -> RemoteChatModel:
        bound: CallBinding = self.binding
        return bound_instance(RemoteChatModel, replace(bound, inner=inner, sender=bound.sender.around(inner)), inner.kept)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        account = self._account(messages, stop, kwargs, is_handed_out=False)
        for _ in account.pieces():
            pass
        return account.answer()

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        account = self._account(messages, stop, kwargs, is_handed_out=False)
        async with aclosing(account.apieces()) as pieces:
            async for _ in pieces:
                pass
        return account.answer()

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with closing(self._account(messages, stop, kwargs, is_handed_out=True).pieces()) as pieces:
            yield from pieces

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async with aclosing(self._account(messages, stop, kwargs, is_handed_out=True).apieces()) as pieces:
            async for piece in pieces:
                yield piece

    def raw(self, request: ModelRequest, sender: Sends) -> AsyncGenerator[RawPiece]:
        """Make one call through ``sender``, without retries, and yield the parts of the answer as raw bytes.

        The call is metered, rate-limited and reported like any other call.

        Args:
            request: the request that the sender makes.
            sender: makes the call; it yields :class:`~vinelm.backends.remote.meter.RawPiece` objects.
        """
        bound: CallBinding = self.binding
        call = replace(bound.call, on_exchange=None)
        once = replace(bound, call=call, sender=sender, policy=RetryPolicy(max_retries=0), prompts=None, chosen=None)
        pieces: Any = _Account(once, request, is_handed_out=True).apieces()
        return cast("AsyncGenerator[RawPiece]", pieces)

    def _account(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, kwargs: Mapping[str, Any], *, is_handed_out: bool
    ) -> _Account:
        """Return a new :class:`_Account` that makes and meters one call.

        ``is_handed_out`` states whether the caller asks for a stream and gets every piece.
        """
        bound: CallBinding = self.binding
        options = dict(kwargs)
        if bound.call.on_prompt is not None:
            bound.call.on_prompt(messages, options.get("tools") or ())
        if bound.priority_sign and (priority := float(bound.call.priority)):
            body = options.get("extra_body") or getattr(bound.inner.given, "extra_body", None) or {}
            options["extra_body"] = {**body, "priority": bound.priority_sign * round(priority)}
        call = bound.call
        # A whole answer is requested as the owner requests it, unless something listens while it is written.
        is_heard = call.on_text is not None or call.on_tool_call is not None
        # langchain-openai parses a stream of a schema's answer twice, and pydantic warns about what the first parser left.
        is_warned = "response_format" in options and package_of(bound.inner.given) == "langchain_openai"
        is_streamed = is_handed_out or is_heard or (bound.streams and not is_warned)
        request = request_of(
            bound.model, bound.inner, messages, stop, options, is_streamed=is_streamed, own_limit=bound.own_limit
        )
        if request.answers > 1 and not is_handed_out:  # LangChain joins the pieces of several answers into one
            request = replace(request, is_streamed=False)
        if bound.chosen is not None:
            bound = bound.chosen(request)
        return _Account(bound, request, is_handed_out=is_handed_out)


def request_of(
    model: Model,
    inner: InnerChat,
    messages: Sequence[BaseMessage],
    stop: list[str] | None,
    options: Mapping[str, Any],
    *,
    is_streamed: bool,
    own_limit: int | None = None,
) -> ModelRequest:
    """Return the request that is sent to the model: with a limit on the answer's tokens, and without settings that the model
    refuses.

    ``own_limit`` is the answer limit that the application set on its own chat model object; None if there is no such object or
    limit.

    Raises:
        ConfigError: the call asks for more tokens than the entry allows, for another model, or for a more expensive service.
        WorkflowError: the application has several chat model objects for the entry, and it is unknown which of them to call.
    """
    if isinstance(inner.given, SeveralObjects):  # before anything is authorized
        inner.given.refuse()
    given = dict(options)
    _refuse_dearer(model, inner, given)
    limit, is_asked = own_limit or model.max_tokens, own_limit is not None or model.max_tokens != inner.entry_max_tokens
    for name in LIMITS:
        asked = given.pop(name, None)
        if asked is None:
            continue
        if own_limit is not None:
            limit, own_limit = model.max_tokens, None  # the call's limit, which replaces that of the object
        if type(asked) is not int or not 1 <= asked <= max(limit, model.max_tokens):
            raise ConfigError(_only_less(model), code=UNSUPPORTED_CALL)
        limit, is_asked = min(limit, asked), True
    # Fields in the body override what the package has built, including the entry's limit.
    body_limit = limit_in(*held_in(given)) or 0
    if body_limit > model.max_tokens:
        raise ConfigError(_only_less(model), code=UNSUPPORTED_CALL)
    limit = max(limit, body_limit, inner.body_limit or 0)
    if isinstance(config := given.get("inferenceConfig"), Mapping) and not config.get("maxTokens"):  # replaces the object's own
        given["inferenceConfig"] = {**config, "maxTokens": limit}
    is_limited = is_asked or bool(body_limit) or (inner.body_limit or limit_of(inner.given)) is not None
    dropped = set(inner.refused)
    if "temperature" in given and _NO_TEMPERATURE.search(model.model_id) and given.get("reasoning_effort") != "none":
        dropped.add("temperature")  # an application sets it for all models that may be chosen
    request = ModelRequest(
        messages=messages,
        stop=None if "stop" in dropped else stop,
        options={name: value for name, value in given.items() if value is not None},
        limit=limit,
        is_limit_asked=is_asked,
        is_limited=is_limited,
        speaks=inner.speaks or speaks_in(given),
        stored=inner.stored + stored_in(given),
        owned=inner.own,
        answers=max(answers_in(given), inner.answers),
        is_streamed=(is_streamed or inner.wants_stream) and inner.streams(given.get("tools")) and "stream" not in dropped,
        dropped=frozenset(dropped),
    )
    if must_not_think(inner.given, messages, request.options, limit):
        request = replace(request, dropped=request.dropped | {"thinking"})
    return request


def _only_less(model: Model) -> str:
    return f"model {model.name!r}: max_tokens is the entry's, {model.max_tokens}: a call may only ask for less"


def _refuse_dearer(model: Model, inner: InnerChat, options: Mapping[str, Any]) -> None:
    """Raise an error if a call's options ask for another model or a more expensive service, since the catalog entry's price
    would be wrong.
    """
    own = (setting_of(inner.given, name) for name in ("model", "model_name", "model_id", "azure_deployment"))
    if (other := other_model_in(options, model.model_id, model.model_id.partition(":")[2], *own)) is not None:
        raise ConfigError(
            f"model {model.name!r}: a call asks for the model {other!r}, which has another price: make a chat model of its own "
            "for it, in place of the option",
            code=UNSUPPORTED_CALL,
        )
    if (tier := dearer_in(options)) is not None and has_list_price(model):
        raise ConfigError(
            f"model {model.name!r}: a call asks for {tier[0]} = {tier[1]!r}, which costs more than the list price: leave it "
            "out, or give the entry a price of its own",
            code=UNSUPPORTED_CALL,
        )


for _asked in (RemoteChatModel._generate, RemoteChatModel._agenerate):
    _asked.__signature__ = signature(_asked)  # type: ignore[union-attr]  # LangChain works it out anew for every call


class _Account:
    """Makes and meters one call, as a context manager. At the end of the block the call's usage is reported exactly once.

    The call is authorized first, within its budgets. However it ends, its permit is settled exactly once.

    The SDK's exceptions hold the request: headers, prompt and answer. So they are translated as soon as they are caught, and
    :class:`~vinelm.errors.CallError` is raised outside of any handler, without cause or context.
    """

    def __init__(self, bound: CallBinding, request: ModelRequest, *, is_handed_out: bool) -> None:
        self._bound, self._request, self._is_handed_out = bound, request, is_handed_out
        self._prompt_chars = len(request.prompt)
        self._metered = MeteredCall(
            model=bound.model,
            context=bound.call,
            policy=bound.policy,
            request=request,
            prompt_chars=self._prompt_chars,
            bound=cache(lambda: bound_of(bound.model, request)),
            states_reasons=False,
            list_price=bound.list_price,
            rate=bound.inner.rate,
        )
        self._permit: CallPermit | None = None
        self._last: AttemptFailed | None = None
        self._inner = bound.inner
        self._held: list[Piece] = []
        self._answer: ChatResult | None = None
        equal = bound.call.equal if bound.chosen is None and bound.list_price is None else None
        self._equal = equal
        self._digest = None if equal is None else equal.digest(bound.call.stage, bound.model, bound.inner, request)
        self._leads = False
        self._usage: Usage | None = None  # for a call answered by an equal one
        self._keeps = not is_handed_out or bound.call.on_exchange is not None or self._digest is not None

    def answer(self) -> ChatResult:
        """Return the whole answer as the inner chat model returned it."""
        assert self._answer is not None  # it would have failed
        return self._answer

    def pieces(self) -> Generator[ChatGenerationChunk]:
        """Make the call, and yield its chunks if the caller streams, else nothing."""
        bound, metered = self._bound, self._metered
        sleep = bound.call.clock.sleep
        with self:
            if (known := self._known) is not None:
                if self._is_handed_out:
                    yield chunk_of(known)
                return
            for entry in entries_of(bound.model):
                bound.sender.ready(entry).sync()
            for attempt in bound.policy.sync(self._may_repeat, sleep):
                limiter, prompt = self._admission()
                with (
                    limiter.admit(self._tokens(), sleep, self._priority) as ticket,
                    self._attempt(ticket) as entry,
                    closing(bound.sender.send(entry, self._placed(prompt))) as pieces,
                ):
                    for piece in pieces:
                        self._hold(piece)
                        is_token = metered.see(piece)
                        prompt.begun()
                        if self._is_handed_out:
                            yield self._handed(piece, is_token=is_token)
                with attempt:
                    self._raise_attempt()
        self._raise_call()

    async def apieces(self) -> AsyncGenerator[ChatGenerationChunk]:
        """Make the call, and yield its chunks, like :meth:`pieces`, without blocking the event loop."""
        bound, metered = self._bound, self._metered
        sleep = _sleeper(bound.call)
        async with self:
            if (known := self._known) is not None:
                if self._is_handed_out:
                    yield chunk_of(known)
                return
            for entry in entries_of(bound.model):
                await bound.sender.ready(entry).here()
            async for attempt in bound.policy.asynchronous(self._may_repeat, sleep):
                limiter, prompt = self._admission()
                async with limiter.aadmit(self._tokens(), sleep, self._priority) as ticket:
                    with self._attempt(ticket) as entry:
                        async with aclosing(bound.sender.asend(entry, self._placed(prompt))) as pieces:
                            async for piece in pieces:
                                self._hold(piece)
                                is_token = metered.see(piece)
                                prompt.begun()
                                if self._is_handed_out:
                                    yield self._handed(piece, is_token=is_token)
                with attempt:
                    self._raise_attempt()
        self._raise_call()

    def _hold(self, piece: Piece) -> None:
        """Store a part of the answer if the whole answer is needed later. Called before the time limit is checked, so that a
        complete answer is used even if it is late.
        """
        if self._keeps:
            self._held.append(piece)

    def _handed(self, piece: Piece, *, is_token: bool) -> ChatGenerationChunk:
        """Return a part of the answer as a chunk for the caller of a stream.

        ``is_token`` tells whether the part has model output. Once such a part is returned, the call is not repeated.
        """
        if is_token:
            self._metered.hand_out()
        return chunk_of(piece) if isinstance(piece, ChatResult) else piece

    # -- one attempt -----------------------------------------------------------------------------------------------

    @cached_property
    def _priority(self) -> SupportsFloat:
        """Return the call's priority. For a replica group the priority includes the prompt, since a replica may have cached the
        beginning of the prompt.
        """
        bound = self._bound
        if not isinstance(bound.rate_limiter, ReplicaGate) or not (parts := prompt_parts(self._request)):
            return bound.call.priority
        return PromptPriority(bound.call.priority, *points_of(shape_of(parts, b"")))

    def _admission(self) -> tuple[RateLimiter, PromptCall]:
        """Return the rate limiter for an attempt, and the description of its prompt for the prompt cache.

        The description is empty if the model has no prompt cache, or if the application marks the prompt itself.
        """
        bound = self._bound
        if bound.call.on_gate is not None:
            bound.call.on_gate(True)
        if bound.prompts is not None and (parts := prompt_parts(self._request)):
            takes_marks, may_wait = bound.provider.marks is not None, bound.call.request is not None
            prompt = PromptCall.of(bound.call.stage, shape_of(parts, b""), takes_marks=takes_marks, may_wait=may_wait)
            return bound.prompts.of(prompt), prompt
        return bound.rate_limiter, _NO_CACHE

    def _placed(self, prompt: PromptCall) -> ModelRequest:
        """Return the request to send: with cache marks, and with the number of the server's slot if one is assigned."""
        request, slot = self._marked(prompt), self._bound.call.slot
        number = None if slot is None else slot()
        if number is None:
            return request
        body = request.options.get("extra_body") or getattr(self._bound.inner.given, "extra_body", None) or {}
        return replace(request, options={**request.options, "extra_body": {**body, SLOT: number}})

    def _marked(self, prompt: PromptCall) -> ModelRequest:
        provider, request = self._bound.provider, self._request
        if prompt.first is None:
            return request
        if provider.marks is not None:
            messages, options = provider.marks.placed(request, prompt.marked_parts)
            return replace(request, messages=messages, options=options)
        if provider.keeps_by_key(self._bound.model):
            return replace(request, options={"prompt_cache_key": f"{prompt.first:016x}", **request.options})
        return request

    def _tokens(self) -> int:
        """Return the number of tokens that rate limits count for a call until the real number is known: the estimated prompt
        and the longest answer.
        """
        return estimate_tokens(self._prompt_chars) + self._bound.model.max_tokens

    @contextmanager
    def _attempt(self, ticket: RatePermit) -> Iterator[Model]:
        """Make one attempt inside the block, and yield the catalog entry (for a replica group, the replica) to which it goes.

        An error of the block is recorded as the attempt's failure and not raised. At the end, ``ticket``, the permit of the
        rate limiter, gets the number of used tokens.
        """
        bound, metered = self._bound, self._metered
        self._last = None
        self._held.clear()
        entry = _served_by(bound.model, ticket)
        self._inner = bound.sender.ready(entry)
        metered.states_reasons = self._request.is_streamed in self._inner.states_reasons
        if bound.call.on_gate is not None:
            bound.call.on_gate(False, *([ticket.engine] if isinstance(ticket, ReplicaPermit) else []))
        metered.begin()
        try:
            yield entry
            self._complete()
        except Exception as error:  # the provider's package may raise anything
            self._last = self._failed(error)
        finally:
            metered.end(self._last)
            if bound.call.on_over is not None:
                bound.call.on_over(metered.cached_part)
            bound.inner.saw_rate(metered.rate)
            ticket.settle(metered.tokens)
            if isinstance(ticket, ReplicaPermit):
                ticket.ended(failed=self._last is not None and self._last.kind in REPLICA_FAULTS)

    def _failed(self, error: Exception) -> AttemptFailed | None:
        """Return the failure that an exception during an attempt stands for, or None if the answer had arrived completely
        before it.

        Raise the exception again if it is one of VineLM's own.
        """
        seen = self._metered.seen
        if isinstance(error, VineLMError):  # raised by VineLM, or by an inner model
            self._last = AttemptFailed("unknown", "not the model's", may_be_billed=seen.has_begun)
            raise error
        found = failed(error, has_begun=seen.has_content or seen.counts is not None)
        if not self._metered.survives(found):
            return found
        try:
            self._complete()
        except AttemptFailed as failed_check:
            return failed_check
        return None

    def _complete(self) -> None:
        """Check the answer, and join its pieces if they were kept. Raise :class:`AttemptFailed` if the answer is incomplete or
        missing.
        """
        self._metered.check()
        self._answer = self._joined()
        if self._held and self._answer is None:
            raise AttemptFailed("malformed", "the pieces of the answer cannot be joined")

    def _joined(self) -> ChatResult | None:
        with suppress(*NO_ANSWER):
            return answer_of(self._held)
        return None

    def _may_repeat(self, found: AttemptFailed) -> bool:
        """Return whether to make another attempt after the failure ``found``.

        If the model refused a setting, the setting is left out from then on.
        """
        if isinstance(found, SettingRefused) and not self._metered.has_handed_out:
            request = self._request
            if found.setting in request.dropped or len(request.dropped) >= MOST_SETTINGS:
                return False
            self._inner.refused.add(found.setting)
            self._bound.inner.refused.add(found.setting)
            dropped = request.dropped | {found.setting}
            stop = None if found.setting in ("stop", "stop_sequences") else request.stop
            # Without usage a stream counts at its upper bound, so such a server is asked for whole answers if the caller
            # accepts them.
            is_streamed = request.is_streamed and (self._is_handed_out or found.setting != "stream_options")
            if not is_streamed:
                self._inner.refused.add("stream")
            self._request = self._metered.request = replace(request, dropped=dropped, stop=stop, is_streamed=is_streamed)
            return True
        return self._metered.may_repeat(found)

    def _raise_attempt(self) -> None:
        if self._last is not None:
            raise self._last
        self._metered.is_complete = True
        if self._metered.seen.reason != NOT_REPORTED:
            self._inner.states_reasons.add(self._request.is_streamed)

    def _raise_call(self) -> None:
        if self._last is not None:
            raise self._metered.error(self._last)

    # -- the call's money --------------------------------------------------------------------------------------------

    def __enter__(self) -> _Account:
        self._take(self._waited(leads=False))
        if self._known is None:
            if self._bound.call.guard is not None:
                with self._owed():
                    self._permit = self._bound.call.guard.authorize(self._upper_usd())
            with self._closed_on_error():
                self._take(self._waited(leads=True))
        return self

    async def __aenter__(self) -> _Account:
        self._take(await self._awaited(leads=False))
        if self._known is None:
            if self._bound.call.guard is not None:
                with self._owed():
                    self._permit = await aauthorized(self._bound.call.guard, self._upper_usd())
            with self._closed_on_error():
                self._take(await self._awaited(leads=True))
        return self

    # -- equal calls: see vinelm.backends.remote.equal_calls ---------------------------------------------------------

    def _waited(self, *, leads: bool) -> str | None:
        """Return the answer of an equal call: the stored answer, or that of a call in flight, for which this method waits.

        Return None if this call has to be made: no equal call has an answer, the wait took too long, or this call does not
        share answers. In the first case and with ``leads``, later equal calls wait for this call.
        """
        try:
            with self._joined_to(leads=leads) as future:
                # The event loop of this thread may be needed by the call that would be waited for.
                return None if future is None else future.result(0 if _loop_runs() else LONGEST_WAIT_S)
        except TimeoutError:
            self._digest = None  # this call neither leads nor joins
            return None

    async def _awaited(self, *, leads: bool) -> str | None:
        try:
            with self._joined_to(leads=leads) as future:
                return None if future is None else await asyncio.wait_for(asyncio.wrap_future(future), LONGEST_WAIT_S)
        except TimeoutError:
            self._digest = None
            return None

    @contextmanager
    def _joined_to(self, *, leads: bool) -> Iterator[Future[str | None] | None]:
        """Look for an equal call that was answered before or is in flight, and yield a future of its answer.

        Yields None if this call does not share answers. If no equal call has an answer, the future's result is None: this call
        has to be made. With ``leads``, later equal calls then wait for this call. If the ``with`` block raises, this call stops
        waiting, and later equal calls do not wait for this call.
        """
        if self._equal is None or self._digest is None:
            yield None
            return
        future = self._equal.ask(self._digest, leads=leads)
        try:
            yield future
            self._leads = leads and future.result() is None
        except BaseException:
            if not future.cancel() and leads and future.result() is None:  # it has just become the leader
                self._equal.end(self._digest, None)
            raise

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # nothing was sent: it cost nothing
            self.__exit__(type(error), error, None)
            raise

    def _take(self, said: str | None) -> None:
        """If ``said`` is the stored answer of an equal call, use it as this call's answer and usage; if it is None, do
        nothing.
        """
        if said is not None:
            self._answer, usage = answer_in(said)
            waited_s = max(self._bound.call.clock.now() - self._metered.asked_s, 0.0)
            self._usage = replace(usage, model=self._bound.model.name, waited_s=waited_s)

    @property
    def _known(self) -> ChatResult | None:
        return None if self._usage is None else self._answer

    @contextmanager
    def _owed(self) -> Iterator[None]:
        """Inside the block, let the budget's guard know whether an earlier run already paid for this call.

        The guard never refuses a call that is paid for.
        """
        token = OWED.set(self._bound.is_owed)
        try:
            yield
        finally:
            OWED.reset(token)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        return self.__exit__(kind, error, trace)

    def _upper_usd(self) -> float:
        bound = self._bound
        # A call in a batch is not repeated either.
        attempts = BILLED_ATTEMPTS if bound.list_price is None and bound.policy.max_retries else 1
        return attempts * bound.inner.rate * self._metered.bound().usd(bound.model.price)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        is_ours = isinstance(error, AttemptFailed)
        failure: FailureKind | None = error.kind if isinstance(error, AttemptFailed) else None
        if isinstance(error, Exception) and not is_ours:
            failure = "unknown"
        said: str | None = None
        try:
            usage = self._usage or self._metered.usage(failure)
            self._report(usage)
            if self._leads and error is None and not self._last:
                said = kept_text(self._answer, usage)
        finally:  # whatever fails, nothing stays reserved and no equal call waits in vain
            try:
                if self._permit is not None:
                    self._permit.close()
            finally:
                if self._leads and self._equal is not None and self._digest is not None:
                    self._equal.end(self._digest, said)
        return is_ours

    def _report(self, usage: Usage) -> None:
        call = self._bound.call
        try:
            if self._permit is not None:
                self._permit.settle(usage)
        finally:
            call.on_usage(usage)
        if call.on_exchange is not None:
            call.on_exchange(self._request.messages, message_of(self._answer or self._joined()), self._asked())

    def _asked(self) -> dict[str, Any]:
        """Return the options of the call together with the inner chat model's settings that affect its answers."""
        request, given = self._request, self._bound.inner.given
        found = {name: setting_of(given, name) for name in ("temperature", "top_p", "seed", "reasoning_effort")}
        found |= {**request.options, "stop": request.stop or None}
        if request.is_limit_asked:
            found["max_tokens"] = request.limit
        return {name: one for name, one in found.items() if one is not None and name not in request.dropped}


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _served_by(model: Model, ticket: RatePermit) -> Model:
    """Return the catalog entry to which an attempt is sent: the replica that its permit ``ticket`` names, otherwise ``model``
    itself.
    """
    return model.replica(getattr(ticket, "replica", 0)) if isinstance(model, ReplicaGroup) else model


def _sleeper(call: CallContext) -> Callable[[float], Awaitable[None]]:
    """Return an asynchronous sleep function on the request's clock. If the clock is real, the event loop is not blocked."""
    if isinstance(call.clock, WallClock):
        return asyncio.sleep

    async def sleep(seconds: float) -> None:
        call.clock.sleep(seconds)

    return sleep
