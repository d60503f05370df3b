"""Times and prices the attempts of one call on a remote model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import BaseMessage

from vinelm.backends.base import Counts, estimate_tokens
from vinelm.backends.remote.response import Delta, ResponseBuilder
from vinelm.backends.remote.retry import AttemptFailed, RetryPolicy
from vinelm.backends.remote.transport import AttemptBound
from vinelm.catalog import Model, Price
from vinelm.errors import CallError, FailureKind
from vinelm.money.stated_tokens import MOST_CHARS, SPARED_CHARS, is_too_few, texts_of
from vinelm.requests.protocols import CallContext
from vinelm.rows.observation import Usage


@dataclass(slots=True)
class MeteredCall:
    """Times and prices the attempts of one call and makes its usage record.

    ``finish_failures`` maps a provider's finish reasons to failures; ``bound`` computes the upper bound of one attempt;
    ``list_price`` is the ordinary price of a call that goes in a batch.

    What an attempt costs: nothing, if it was not sent or the server refused it; the tokens that the server counted, if the
    answer has its end, the counts came with it or after it, and they are possible; in every other case its upper bound, since
    nobody knows what will be billed (the server may go on after a timeout, and may have reasoned at length without a word of
    it in the answer). The token counts of the record are then estimated from the length of the text.
    """

    model: Model
    context: CallContext
    policy: RetryPolicy
    finish_failures: Mapping[str, FailureKind]
    messages: Sequence[BaseMessage]
    prompt_chars: int
    is_streamed: bool
    bound: Callable[[], AttemptBound]
    list_price: Price | None = None
    attempts: int = 0
    billed: int = 0
    is_complete: bool = False
    answer: ResponseBuilder = field(default_factory=ResponseBuilder)
    _asked_s: float = 0.0
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
        self._asked_s = self._started_s = self.context.clock.now()

    def begin(self) -> None:
        """Start a new attempt."""
        self.attempts += 1
        self.answer = ResponseBuilder()
        self._started_s, self._ended_s, self._ttft_s = self.context.clock.now(), None, None
        if self.is_streamed and self.context.on_text is not None:
            self._hear = self.context.on_text()

    def see(self, delta: Delta) -> None:
        """Add a delta; :class:`AttemptFailed` if the attempt has taken longer than the model's ``timeout_s``."""
        now_s = self.context.clock.now()
        self.answer.add(delta)
        if self.is_streamed and self._ttft_s is None and delta.is_token:
            self._ttft_s = max(now_s - self._started_s, 0.0)
        if delta.tools and self.is_streamed and self.context.on_tool_call is not None:
            for call in filter(None, (self.answer.whole_call(piece.index) for piece in delta.tools)):
                self.context.on_tool_call(*call)
        if self._hear is not None and delta.text:
            self._hear(delta.text)
        if now_s - self._started_s > self.model.timeout_s:
            raise AttemptFailed("timeout", f"no end after {self.model.timeout_s:g} s")

    def hand_out(self) -> None:
        """Note that the caller has seen a delta: the call can no longer be repeated."""
        self._has_handed_out = True

    def check(self) -> None:
        """Check that the answer is complete; :class:`AttemptFailed` otherwise."""
        reason = self.answer.finish_reason
        if reason is None:
            raise AttemptFailed("server", "the answer broke off before its end")
        failure = self.finish_failures.get(reason)
        if failure == "truncated":
            raise AttemptFailed(
                failure, f"the answer was cut off at max_tokens = {self.model.max_tokens}: raise it, or stop less"
            )
        if failure is not None:
            raise AttemptFailed(failure, f"the server ended the answer with finish reason {reason!r}")
        if self.answer.is_refused:
            raise AttemptFailed("content_filter", "the model refused to answer")
        if self.answer.is_empty:
            raise AttemptFailed("empty", "the answer has neither text nor a tool call")

    def survives(self, failed: AttemptFailed) -> bool:
        """Return whether the answer was complete before the connection failed: it is used then, not bought again."""
        return failed.kind in ("timeout", "server") and self.answer.finish_reason is not None

    def end(self, failed: AttemptFailed | None) -> None:
        """End the attempt: stop its clock and add its price."""
        self._ended_s = self.context.clock.now()
        answer, self._counts, self._is_estimated = self.answer, None, False
        # Counts that came too early or cannot be are no counts: the attempt then costs its upper bound.
        if answer.counts is not None and not (answer.counts_are_final and self._believes(answer.counts)):
            answer.counts = None
        if failed is not None and not failed.may_be_billed:
            return
        self.billed += 1
        if answer.counts is not None and answer.finish_reason is not None:
            counts = self._counts = answer.counts
            asks = bool(counts.unsplit) and self.bound().asks_for_an_hour
            self._add(lambda price: counts.usd(price, asks_for_an_hour=asks))
            return
        self._counts = Counts(estimate_tokens(self.prompt_chars), estimate_tokens(answer.chars) if answer.chars else 0)
        self._is_estimated = True
        self._add(self.bound().usd)

    def _add(self, usd: Callable[[Price], float]) -> None:
        self._cost_usd += usd(self.model.price)
        if self.list_price is not None:
            self._list_usd += usd(self.list_price)

    def _believes(self, counts: Counts) -> bool:
        """True if counts are possible; ``bound`` is only computed where they are not ordinary."""
        if not self.model.trusted_counts and (
            self._has_too_few_out(counts.tokens_out) or self._has_too_few_in(counts.tokens_in)
        ):
            return False
        if 0 < counts.tokens_in <= self.prompt_chars and counts.tokens_out <= self.model.max_tokens:
            return True
        return self.bound().believes(counts)

    def _has_too_few_out(self, tokens: int) -> bool:
        """True if the text that arrived cannot be made of so few tokens: it would be nearly free, and no cap would hold."""
        chars = self.answer.chars
        return bool(chars) and (tokens == 0 or chars > MOST_CHARS * tokens + SPARED_CHARS)

    def _has_too_few_in(self, tokens: int) -> bool:
        """True if the prompt cannot be: a server that leaves out what it read from its cache, or wrote to it."""
        return self.prompt_chars > MOST_CHARS * tokens and is_too_few(tokens, *texts_of(self.messages))

    def may_repeat(self, failed: AttemptFailed) -> bool:
        """Return whether another attempt follows."""
        return not self._has_handed_out and self.policy.may_repeat(failed, self.attempts, self.billed)

    @property
    def tokens(self) -> int:
        """Tokens of the last attempt, both ways; 0 for one that the server turned down."""
        return self._counts.tokens_in + self._counts.tokens_out if self._counts is not None else 0

    def usage(self, failure: FailureKind | None) -> Usage:
        """Return the record of the call; times are those of the last attempt."""
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
            provider_latency_s=self.answer.provider_latency_s,
            retries=max(self.attempts - 1, 0),
            waited_s=max((self._started_s if self.attempts else now_s) - self._asked_s, 0.0),
            finish_reason=self.answer.finish_reason if self.is_complete or failure else None,
            provider_request_id=self.answer.request_id,
            price_id=self.model.price_id,
            failure=failure,
            list_usd=self._list_usd if is_batched else None,
        )

    def error(self, failed: AttemptFailed) -> CallError:
        """Return the error for the caller: model and kind, and nothing that a server or a user wrote."""
        tries = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        return CallError(f"{self.model.name}: {failed.kind}{tries}: {failed.detail}", kind=failed.kind, cost_usd=self._cost_usd)
