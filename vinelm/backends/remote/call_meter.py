"""Times and prices the attempts of one call on a remote model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import BaseMessage

from vinelm.backends.base import Counts, estimate_tokens
from vinelm.backends.remote.response import Delta, ResponseBuilder
from vinelm.backends.remote.retry import BILLED_ATTEMPTS, AttemptFailed, RetryPolicy
from vinelm.catalog import Model
from vinelm.errors import CallError, FailureKind
from vinelm.observation import Usage
from vinelm.protocols import CallContext

TEMPLATE_TOKENS = 1024
"""Tokens that a server's chat template may add to the prompt: a default system prompt, instructions for tools."""
ATTACHMENT_TOKENS = 16384
"""Tokens that an image, sound or file behind a link may count for; one that is sent along is bounded by its bytes."""


def upper_bound_usd(model: Model, *, prompt_bytes: int, max_tokens: int, links: int = 0, writes_cache: bool = False) -> float:
    """Return the most dollars that a call can cost, :data:`~vinelm.backends.remote.retry.BILLED_ATTEMPTS` attempts included.

    Every token of the prompt stands for at least one of its bytes; the template's own and ``links`` attachments come on top.
    """
    tokens_in = prompt_bytes + TEMPLATE_TOKENS + ATTACHMENT_TOKENS * links
    price = model.price
    written = tokens_in if writes_cache else 0
    cached = tokens_in if (price.cached or 0.0) > price.input and not written else 0
    return BILLED_ATTEMPTS * price.cost_usd(tokens_in, max_tokens, cached, written, written)


@dataclass(slots=True)
class MeteredCall:
    """Times and prices the attempts of one call and makes its usage record.

    ``finish_failures`` maps a provider's finish reasons to failures. Where the provider does not count the tokens of an
    attempt that it began to answer (or of one that timed out), they are estimated from the text's length: what may have been
    billed is never counted as free.
    """

    model: Model
    context: CallContext
    policy: RetryPolicy
    finish_failures: Mapping[str, FailureKind]
    messages: Sequence[BaseMessage]
    prompt_chars: int
    is_streamed: bool
    attempts: int = 0
    billed: int = 0
    is_complete: bool = False
    answer: ResponseBuilder = field(default_factory=ResponseBuilder)
    _asked_s: float = 0.0
    _started_s: float = 0.0
    _ended_s: float | None = None
    _ttft_s: float | None = None
    _cost_usd: float = 0.0
    _counts: Counts | None = None
    _is_estimated: bool = False
    _has_handed_out: bool = False

    def __post_init__(self) -> None:
        self._asked_s = self._started_s = self.context.clock.now()

    def begin(self) -> None:
        """Start a new attempt."""
        self.attempts += 1
        self.answer = ResponseBuilder()
        self._started_s, self._ended_s, self._ttft_s = self.context.clock.now(), None, None

    def see(self, delta: Delta) -> None:
        """Add a delta; :class:`AttemptFailed` if the attempt has taken longer than the model's ``timeout_s``."""
        now_s = self.context.clock.now()
        self.answer.add(delta)
        if self.is_streamed and self._ttft_s is None and delta.is_token:
            self._ttft_s = max(now_s - self._started_s, 0.0)
        if now_s - self._started_s > self.model.timeout_s and self.answer.finish_reason is None:
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

    def end(self, failed: AttemptFailed | None) -> None:
        """End the attempt: stop its clock and add its price."""
        self._ended_s = self.context.clock.now()
        self._counts, self._is_estimated = self.answer.counts, False
        may_be_billed = self.answer.has_begun or (failed is not None and failed.kind == "timeout")
        if self._counts is None and may_be_billed:
            chars = self.answer.chars
            self._counts = Counts(estimate_tokens(self.prompt_chars), estimate_tokens(chars) if chars else 0)
            self._is_estimated = True
        if self._counts is not None:
            counts = self._counts
            self.billed += 1
            self._cost_usd += self.model.price.cost_usd(
                counts.tokens_in, counts.tokens_out, counts.cached or 0, counts.written, counts.written_1h
            )

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
        return Usage(
            model=self.model.name,
            cost_usd=self._cost_usd,
            latency_s=max(now_s - self._started_s, 0.0) if self.attempts else 0.0,
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
        )

    def error(self, failed: AttemptFailed) -> CallError:
        """Return the error for the caller: model and kind, and nothing that a server or a user wrote."""
        tries = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        return CallError(f"{self.model.name}: {failed.kind}{tries}: {failed.detail}", kind=failed.kind, cost_usd=self._cost_usd)
