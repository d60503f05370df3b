"""One call on a remote model: its request, the observed answer, and the cost of each attempt.

The states of a call's cost::

    asked       the bound, which is the maximum cost of its attempts, is computed
       |        the guard reserves it, or refuses the call: nothing was sent
    reserved    an attempt waits for the rate limits, and is sent
       |        a failure that cannot be billed costs nothing; any other failure costs the attempt's bound;
       |        a complete answer costs what it states if that is plausible, otherwise the attempt's bound
    booked      another attempt may follow, but none once the caller has seen a piece; at most two may be billed
       |
    settled     once, however the call ends: answered, failed, cancelled, abandoned in its stream
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.messages.tool import default_tool_parser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils._merge import merge_dicts

from vinelm.backends.base import Counts, estimate_tokens, seconds_of
from vinelm.backends.remote.bounds import AttemptBound, has_sound, links_in
from vinelm.backends.remote.failures import end_failure
from vinelm.backends.remote.retry import AttemptFailed, RetryPolicy
from vinelm.backends.remote.usage import UsageSum
from vinelm.catalog import Model, Price
from vinelm.catalog.prices import price_of_id
from vinelm.catalog.secrets import redacted
from vinelm.errors import CallError, FailureKind
from vinelm.money.stated_tokens import MOST_CHARS, SPARED_CHARS, asks_for_an_hour, is_too_few, texts_of
from vinelm.requests.protocols import CallContext
from vinelm.rows.observation import Usage

PRIORITY_RATE = 2.0
"""Ratio to the list price of a call that is served at OpenAI's tier "priority" (by its guide to priority processing)."""
NOT_REPORTED = "not_reported"
_REASON_KEYS = ("finish_reason", "stop_reason", "stopReason", "done_reason")
_THOUGHTS = ("thinking", "reasoning", "text", "refusal", "partial_json", "arguments", "input", "data")
_NO_USAGE = UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)
_TOLD = ("response_metadata", "additional_kwargs", "generation_info")
_LABEL = re.compile(r"[!-~]{1,200}")


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to the inner chat model: the caller's messages and options, unchanged.

    Attributes:
        limit: the maximum number of tokens of each answer.
        answers: the number of answers that the request asks for.
        is_streamed: whether the answer is sent in pieces.
        is_limit_asked: whether the call itself sets the limit. If not, and the application's own chat model object has no limit
            either, the request is sent without a limit.
        is_limited: whether the request that is sent states any limit.
        speaks: whether the answer may contain audio.
        stored: the number of prompt parts that are stored at the provider, so that their length is unknown.
        owned: the settings that the chat model itself adds to the request.
        dropped: the settings that the model refuses, which are left out.
    """

    messages: Sequence[BaseMessage]
    stop: list[str] | None
    options: Mapping[str, Any]
    limit: int
    answers: int
    is_streamed: bool
    is_limit_asked: bool = False
    is_limited: bool = True
    speaks: bool = False
    stored: int = 0
    owned: Mapping[str, Any] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()

    @property
    def prompt(self) -> str:
        """The whole prompt as text. The number of its bytes is an upper bound on the number of tokens."""
        asked = {key: one for key, one in self.options.items() if key not in ("stream", "priority")}
        turns = [
            (message.content, message.tool_calls if isinstance(message, AIMessage) else None, message.additional_kwargs)
            for message in self.messages
        ]
        return _JSON.encode([turns, asked, self.owned] if self.owned else [turns, asked])


def _schema_of(other: Any) -> Any:
    """Return the JSON schema that a package sends for a Python object such as a pydantic class."""
    schema = getattr(other, "model_json_schema", None)
    return schema() if isinstance(other, type) and callable(schema) else str(other)


_JSON = json.JSONEncoder(ensure_ascii=False, default=_schema_of)


def bound_of(model: Model, request: ModelRequest) -> AttemptBound:
    """Return the maximum number of tokens of one attempt at a request, whichever prefixes of the prompt are cached."""
    prompt = request.prompt
    writes = (
        model.cache_points != "off"
        or "cache_control" in prompt
        or "cachePoint" in prompt
        or "cache_control" in str(model.options)
    )
    return AttemptBound.of(
        prompt,
        max_tokens=request.limit * request.answers,
        links=links_in(request.messages) + request.stored,
        hears=has_sound(request.messages),
        speaks=request.speaks,
        is_limited=request.is_limited,
        writes_cache=writes,
        asks_for_an_hour=writes
        and asks_for_an_hour([list(request.messages), dict(request.options), request.owned, model.options]),
    )


@dataclass(slots=True)
class SeenAnswer:
    """What the meter has recorded about one attempt's answer.

    Attributes:
        has_begun: whether any piece has arrived.
        has_content: whether the answer has text or a tool call.
        is_refused: whether the model refused to answer.
        chars: number of characters that the model wrote, including reasoning and tool-call arguments.
        reason: the finish reason; None until the server states it.
        counts: the token counts; None if they are not stated or not valid.
        request_id: the provider's id of the answer.
        provider_latency_s: the latency that the provider measured, in seconds.
        service_tier: the service tier that served the call.
    """

    has_begun: bool = False
    has_content: bool = False
    is_refused: bool = False
    chars: int = 0
    reason: str | None = None
    counts: Counts | None = None
    counts_are_final: bool = False
    """True if no output came after the counts. Earlier counts may cover only a part of the answer."""
    request_id: str | None = None
    response_model: str | None = None
    """The name of the model that answered, as the server states it."""
    provider_latency_s: float | None = None
    service_tier: str | None = None
    _usage: UsageSum = field(default_factory=UsageSum)
    _stated: Any = None
    _told: dict[str, Any] = field(default_factory=dict)
    _last_told: Any = None
    _tools: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def look(self, generation: ChatGeneration, more: Mapping[str, Any], *, is_whole: bool) -> str:
        """Record a part of the answer (or, if ``is_whole``, a whole answer), and return its text.

        ``more`` is metadata of the whole result, such as its finish reason, in addition to that of ``generation``.

        Raises:
            AttemptFailed: the part is not the answer of a chat model.
        """
        self.has_begun = True
        try:
            message: Any = generation.message
            told = {**more, **(generation.generation_info or {}), **message.response_metadata}
            text = message.content if isinstance(message.content, str) else str(message.text)
            calls = message.tool_call_chunks if isinstance(generation, ChatGenerationChunk) else message.tool_calls
            chars = _chars(message, text)
            has_calls = bool(calls or getattr(message, "invalid_tool_calls", None))
            self.is_refused |= bool(message.additional_kwargs.get("refusal")) or _has_refusal(message.content)
            usage = message.usage_metadata
            if not is_whole:
                self._join(message, usage, generation.generation_info)
        except (AttributeError, TypeError, ValueError, KeyError):  # the message of the error may quote the answer
            told = None
        if told is None:
            raise AttemptFailed("malformed", "the chat model's answer is no AIMessage, or its pieces cannot be joined")
        self.chars += chars
        self.has_content |= has_calls or bool(text.strip())
        if (chars or has_calls) and not usage and not is_whole:
            self.counts_are_final = False  # the counts do not include what came after them
        if usage:
            self.counts = self._usage.add(usage)
            self.counts_are_final = True
        self.state(told)
        metrics = told.get("metrics")
        if isinstance(metrics, Mapping):
            latency = metrics.get("latencyMs")
            latency_ms = seconds_of(latency[0] if isinstance(latency, list) and latency else latency)
            self.provider_latency_s = None if latency_ms is None else latency_ms / 1000.0
        return text

    def state(self, told: Mapping[str, Any]) -> None:
        """Record the finish reason, the answer's id, the model that answered and the service tier, from the metadata ``told``
        of an answer. A value that ``told`` lacks stays as recorded before.
        """
        reason = _reason(told)
        if reason is not None:
            self.reason = _label(reason) or self.reason
        self.request_id = _label(told.get("id")) or self.request_id
        self.response_model = _label(told.get("model_name") or told.get("model")) or self.response_model
        self.service_tier = told.get("service_tier") or self.service_tier

    def _join(self, message: Any, usage: Any, info: Any) -> None:
        """Add the metadata of a chunk, without its text, to that of the earlier chunks. Raises the errors that LangChain would
        raise at the end of the stream.
        """
        if usage:
            self._stated = add_usage(self._stated, usage)
            AIMessageChunk(content="", usage_metadata={**_NO_USAGE, **self._stated})
        told = (message.response_metadata, message.additional_kwargs, info)
        if any(told) and told != self._last_told:
            self._last_told = told
            self._told = merge_dicts(self._told, dict(zip(_TOLD, told, strict=True)))

    def whole_calls(self, generation: ChatGeneration) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Add a part of a streamed answer, and yield the name and the arguments of each tool call that this part completes."""
        message: Any = generation.message
        for chunk in getattr(message, "tool_call_chunks", None) or ():
            call = self._tools.get(chunk.get("index"))
            if call is None or (chunk.get("id") and call["id"] and chunk["id"] != call["id"]):
                call = self._tools[chunk.get("index")] = {"id": chunk.get("id"), "name": "", "args": ""}
            call["name"] += chunk.get("name") or ""
            call["args"] += chunk.get("args") or ""
            if call["args"].rstrip().endswith("}"):
                raw = {"id": call["id"], "function": {"name": call["name"], "arguments": call["args"]}}
                try:
                    whole, _ = default_tool_parser([raw])
                except (ValueError, RecursionError):  # such as a number of 5,000 digits, or lists 1,000 deep
                    continue
                if whole and isinstance(whole[0]["args"], dict):
                    yield whole[0]["name"], whole[0]["args"]


class RawPiece(ABC):
    """Part of an answer passed on as raw bytes, for callers that use the provider's own format."""

    __slots__ = ()

    @abstractmethod
    def show(self, seen: SeenAnswer) -> bool:
        """Record in ``seen`` what the piece contains, and return whether it contains model output.

        Raises:
            AttemptFailed: the piece cannot be part of an answer.
        """


def _has_refusal(content: Any) -> bool:
    return isinstance(content, list) and any(isinstance(part, Mapping) and part.get("type") == "refusal" for part in content)


def _chars(message: Any, text: str) -> int:
    """Return the number of characters that the model wrote, including reasoning and tool-call arguments."""
    seen = len(text)
    is_piece = isinstance(message, AIMessageChunk)
    if isinstance(message.content, list):
        parts = [part for part in message.content if isinstance(part, Mapping) and part.get("type") != "text"]
        values = [value for part in parts for key in _THOUGHTS if (value := part.get(key)) is not None]
        # In a chunk, a number where a text belongs has no length and cannot be joined: TypeError.
        seen += sum(len(value) for value in values if is_piece or isinstance(value, str))
    chunks = message.tool_call_chunks if is_piece else None
    if chunks is None:
        seen += sum(len(json.dumps(call["args"], default=str)) for call in message.tool_calls)
        chunks = message.invalid_tool_calls
    seen += sum(len(chunk.get("args") or "") for chunk in chunks)
    thoughts = message.additional_kwargs.get("reasoning_content")
    return seen + (len(thoughts) if isinstance(thoughts, str) else 0)


def _reason(told: Mapping[str, Any]) -> str | None:
    """Return the finish reason in an answer's metadata ``told``; None if there is none.

    OpenAI's Responses API states a status instead, and the reason why an answer is incomplete.
    """
    incomplete = told.get("incomplete_details")
    if isinstance(incomplete, Mapping) and incomplete.get("reason"):
        return str(incomplete["reason"])
    found = next((told[key] for key in _REASON_KEYS if told.get(key)), None)
    if found is not None:
        return str(getattr(found, "name", found))
    status = told.get("status")
    return status if status in ("completed", "failed", "incomplete", "cancelled") else None


@lru_cache(maxsize=256)
def _price_of(price_id: str) -> Price | None:
    return price_of_id(price_id)


def _label(value: object) -> str | None:
    """Return an id or a finish reason without secrets; None if it is not a short text of visible characters."""
    return redacted(value) if isinstance(value, str) and _LABEL.fullmatch(value) else None


@dataclass(slots=True)
class MeteredCall:
    """Times and prices the attempts of one call, and creates its usage record. See the module's docstring for what an attempt
    costs.

    Attributes:
        bound: computes the maximum number of tokens of one attempt.
        states_reasons: whether the model gives a finish reason with every complete answer.
        list_price: the model's ordinary price if the call goes in a batch; ``model`` then has the batch price. None otherwise.
        prompt_chars: the length of the prompt in characters.
        attempts: the number of attempts so far.
        billed: the number of these attempts that may cost money.
        is_complete: whether the call was answered.
        seen: the last attempt's answer.
        asked_s: when the call began, in seconds of the request's clock.
    """

    model: Model
    context: CallContext
    policy: RetryPolicy
    request: ModelRequest
    prompt_chars: int
    bound: Callable[[], AttemptBound]
    states_reasons: bool
    list_price: Price | None = None
    rate: float = 1.0
    """What a call costs in multiples of its price, by earlier answers: at a more expensive tier, or of another model."""
    attempts: int = 0
    billed: int = 0
    is_complete: bool = False
    seen: SeenAnswer = field(default_factory=SeenAnswer)
    asked_s: float = 0.0
    _started_s: float = 0.0
    _ended_s: float | None = None
    _ttft_s: float | None = None
    _cost_usd: float = 0.0
    _list_usd: float = 0.0
    _counts: Counts | None = None
    _is_estimated: bool = False
    _has_handed_out: bool = False
    _hear: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self.asked_s = self._started_s = self.context.clock.now()

    def begin(self) -> None:
        """Start a new attempt."""
        self.attempts += 1
        self.seen = SeenAnswer()
        self._started_s, self._ended_s, self._ttft_s = self.context.clock.now(), None, None
        if self.request.is_streamed and self.context.on_text is not None:
            self._hear = self.context.on_text()

    def see(self, piece: ChatGenerationChunk | ChatResult | RawPiece) -> bool:
        """Record a piece of the answer, or a whole answer, and return whether the piece contains model output.

        Raises:
            AttemptFailed: the attempt has taken longer than the model's ``timeout_s``, or the answer is invalid.
        """
        now_s = self.context.clock.now()
        before = self.seen.chars
        if isinstance(piece, ChatGenerationChunk):
            had_calls = isinstance(piece.message, AIMessageChunk) and bool(piece.message.tool_call_chunks)
            text = self.seen.look(piece, {}, is_whole=False)
            # The first chunks of a stream may hold only a role or an id: the first token is the first that the model wrote.
            is_token = had_calls or self.seen.chars > before
            if self._ttft_s is None and is_token:
                self._ttft_s = max(now_s - self._started_s, 0.0)
            if had_calls and self.context.on_tool_call is not None:
                for call in self.seen.whole_calls(piece):
                    self.context.on_tool_call(*call)
            if self._hear is not None and text:
                self._hear(text)
        elif isinstance(piece, RawPiece):
            is_token = piece.show(self.seen)
            if is_token and self.request.is_streamed and self._ttft_s is None:
                self._ttft_s = max(now_s - self._started_s, 0.0)
        else:
            is_token = True
            for generation in piece.generations:
                self.seen.look(generation, piece.llm_output or {}, is_whole=True)
            if not piece.generations:
                raise AttemptFailed("malformed", "the chat model's answer is empty")
        if now_s - self._started_s > self.model.timeout_s:
            raise AttemptFailed("timeout", f"no end after {self.model.timeout_s:g} s")
        return is_token

    def hand_out(self) -> None:
        """Record that the caller of the stream has seen output, so that the call must not be repeated."""
        self._has_handed_out = True

    def check(self) -> None:
        """Check that the answer is complete. Raise :class:`AttemptFailed` otherwise."""
        seen = self.seen
        if seen.reason is None and seen.has_begun and not self.states_reasons:
            seen.reason = NOT_REPORTED
        if seen.reason is None:
            raise AttemptFailed("server", "the answer broke off before its end")
        failure = None if seen.reason == NOT_REPORTED else end_failure(seen.reason)
        if failure == "truncated":
            raise AttemptFailed(failure, f"the answer was cut off at max_tokens = {self.request.limit}: raise it, or stop less")
        if failure is not None:
            raise AttemptFailed(failure, f"the server ended the answer with finish reason {seen.reason!r}")
        if seen.is_refused:
            raise AttemptFailed("content_filter", "the model refused to answer")
        if not seen.has_content:
            raise AttemptFailed("empty", "the answer has neither text nor a tool call")

    def survives(self, failed: AttemptFailed) -> bool:
        """Return whether a timeout or server failure came after the answer's finish reason. Such an answer is used, and the
        call is not repeated.
        """
        return failed.kind in ("timeout", "server") and self.seen.reason is not None

    def end(self, failed: AttemptFailed | None) -> None:
        """End the attempt: stop its clock and add its cost. ``failed`` is its failure; None if it was answered."""
        self._ended_s = self.context.clock.now()
        seen, self._counts, self._is_estimated = self.seen, None, False
        # Counts that came too early or are impossible do not count: the attempt then costs its upper bound.
        if seen.counts is not None and not (seen.counts_are_final and self._believes(seen.counts)):
            seen.counts = None
        if failed is not None and not failed.may_be_billed:
            return
        self.billed += 1
        if seen.counts is not None and seen.reason is not None:
            counts = self._counts = seen.counts
            asks = {
                "asks_for_an_hour": bool(counts.unsplit) and self.bound().asks_for_an_hour,
                "hears": counts.audio is None and has_sound(self.request.messages),
                "speaks": self.request.speaks,
            }
            # A project's own setting may also serve calls at a more expensive tier, so that the list price does not apply.
            rate = PRIORITY_RATE if seen.service_tier == "priority" and self.model.price_id is not None else 1.0
            rate *= self._dearer_by(counts, asks)
            self.rate = max(self.rate, rate)
            self._add(lambda price: rate * counts.usd(price, **asks))
            return
        self._counts = Counts(estimate_tokens(self.prompt_chars), estimate_tokens(seen.chars) if seen.chars else 0)
        self._is_estimated = True
        self._add(lambda price: self.rate * self.bound().usd(price))

    def _dearer_by(self, counts: Counts, asks: Mapping[str, bool]) -> float:
        """Return the factor, at least 1, by which a call costs more because the server answered with another model than
        requested.

        A router or a gateway's fallback may do this. The factor is 1 if the two names differ at most by a date, or if the price
        of the other model is unknown.

        Args:
            counts: the call's token counts.
            asks: the further arguments of :meth:`Counts.usd`.
        """
        model, served = self.model, self.seen.response_model
        if model.price_id is None or served is None or re.fullmatch(re.escape(model.model_id) + r"([-@:]\d[\d-]*)?", served):
            return 1.0
        price = _price_of(f"{model.price_id.partition('/')[0]}/{served}")
        own_usd = counts.usd(self.list_price or model.price, **asks)
        return max(counts.usd(price, **asks) / own_usd, 1.0) if price is not None and own_usd > 0 else 1.0

    def _add(self, usd: Callable[[Price], float]) -> None:
        self._cost_usd += usd(self.model.price)
        if self.list_price is not None:
            self._list_usd += usd(self.list_price)

    def _believes(self, counts: Counts) -> bool:
        """Return whether the server's token counts are plausible, compared with the request's upper bounds.

        The upper bounds are only computed if the counts are unusual.
        """
        if not self.model.trusted_counts and (
            self._has_too_few_out(counts.tokens_out) or self._has_too_few_in(counts.tokens_in)
        ):
            return False
        if 0 < counts.tokens_in <= self.prompt_chars and counts.tokens_out <= self.model.max_tokens:
            return True
        return self.bound().believes(counts)

    def _has_too_few_out(self, tokens: int) -> bool:
        """Return whether the provider reported fewer output tokens than the received text needs. Such a count would hide costs
        from every cost limit.
        """
        chars = self.seen.chars
        return bool(chars) and (tokens == 0 or chars > MOST_CHARS * tokens + SPARED_CHARS)

    def _has_too_few_in(self, tokens: int) -> bool:
        """Return whether the provider reported fewer prompt tokens than the prompt needs. Some servers omit tokens that are
        read from or written to their cache.
        """
        return self.prompt_chars > MOST_CHARS * tokens and is_too_few(tokens, *texts_of(self.request.messages))

    def may_repeat(self, failed: AttemptFailed) -> bool:
        """Return whether to make another attempt after this failure."""
        return not self._has_handed_out and self.policy.may_repeat(failed, self.attempts, self.billed)

    @property
    def has_handed_out(self) -> bool:
        """Whether the caller has seen a piece of the answer."""
        return self._has_handed_out

    @property
    def tokens(self) -> int:
        """Number of tokens of the last attempt, prompt and answer together; 0 if they are unknown or the server refused the
        attempt.
        """
        return self._counts.tokens_in + self._counts.tokens_out if self._counts is not None else 0

    @property
    def cached_part(self) -> float | None:
        """The fraction of the last attempt's prompt that was cached, in [0, 1]; None if the server did not state it."""
        counts = self._counts
        if counts is None or counts.cached is None or not counts.tokens_in or self._is_estimated:
            return None
        return counts.cached / counts.tokens_in

    def usage(self, failure: FailureKind | None) -> Usage:
        """Return the usage record of the call, with the times of the last attempt. ``failure`` is the kind of failure; None if
        the call succeeded.
        """
        counts, ended_s = self._counts, self._ended_s
        now_s = self.context.clock.now() if ended_s is None else ended_s
        latency_s = max(now_s - self._started_s, 0.0) if self.attempts else 0.0
        is_batched = self.list_price is not None
        return Usage(
            model=self.model.name,
            cost_usd=self._cost_usd,
            latency_s=math.nan if is_batched else latency_s,
            tokens_in=counts.tokens_in if counts else None,
            tokens_out=counts.tokens_out if counts else None,
            tokens_cached=counts.cached if counts else None,
            tokens_reasoning=counts.reasoning if counts else None,
            tokens_estimated=self._is_estimated,
            ttft_s=self._ttft_s,
            provider_latency_s=self.seen.provider_latency_s,
            retries=max(self.attempts - 1, 0),
            waited_s=max((self._started_s if self.attempts else now_s) - self.asked_s, 0.0),
            finish_reason=self.seen.reason if self.is_complete or failure else None,
            provider_request_id=self.seen.request_id,
            response_model=self.seen.response_model,
            price_id=self.model.price_id,
            failure=failure,
            list_usd=self._list_usd if is_batched else None,
        )

    def error(self, failed: AttemptFailed) -> CallError:
        """Return the error for the caller. It names the model and the type of failure, without any text from a server or
        user.
        """
        tries = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        return CallError(f"{self.model.name}: {failed.kind}{tries}: {failed.detail}", kind=failed.kind, cost_usd=self._cost_usd)


def answer_of(pieces: Sequence[ChatGenerationChunk | ChatResult]) -> ChatResult | None:
    """Return the whole answer, joined from an attempt's pieces as LangChain joins them; None without pieces."""
    from langchain_core.language_models.chat_models import generate_from_stream

    if not pieces:
        return None
    last = pieces[-1]
    if isinstance(last, ChatResult):
        return last
    joined = generate_from_stream(iter(pieces))  # type: ignore[arg-type]
    # Tracers read the name of the model there, and the caller has asked for a whole answer.
    (generation,) = joined.generations
    told = {**(generation.generation_info or {}), **generation.message.response_metadata}
    name = told.get("model_name")
    return joined if name is None else joined.model_copy(update={"llm_output": {"model_name": name}})


def chunk_of(result: ChatResult) -> ChatGenerationChunk:
    """Return a whole answer as a single chunk, for the caller of a stream whose model does not stream."""
    generation = result.generations[0]
    message: Any = generation.message
    chunk = AIMessageChunk(
        content=message.content,
        additional_kwargs=message.additional_kwargs,
        response_metadata={**(result.llm_output or {}), **message.response_metadata},
        id=message.id,
        tool_calls=message.tool_calls,
        invalid_tool_calls=message.invalid_tool_calls,
        chunk_position="last",
    )
    chunk.usage_metadata = message.usage_metadata  # unvalidated: pydantic would reject odd counts, and with them the answer
    return ChatGenerationChunk(message=chunk, generation_info=generation.generation_info)


def message_of(result: ChatResult | None) -> AIMessage | None:
    """Return the message of an answer; None if there is no answer or it has no message."""
    if result is None or not result.generations:
        return None
    generation = result.generations[0]
    message = generation.message
    if not isinstance(message, AIMessage):
        return None
    told = {**(generation.generation_info or {}), **message.response_metadata}  # LangChain does the same once a call has ended
    return message.model_copy(update={"response_metadata": told})
