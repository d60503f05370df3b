"""The base class of a provider's transport: it builds requests, bounds and sends them, and parses responses and errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from langchain_core.messages import BaseMessage

from vinelm.backends.base import Counts
from vinelm.backends.limits.prompt_admission import AdmitsPrompts
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.retry import AttemptFailed, RetryPolicy
from vinelm.backends.structured_output import Structured
from vinelm.catalog import Model, Price
from vinelm.errors import FailureKind
from vinelm.requests.protocols import CallContext, RateLimiter

TEMPLATE_TOKENS = 1024
"""Tokens that a server's chat template may add to the prompt: a default system prompt, instructions for tools."""
ATTACHMENT_TOKENS = 16384
"""Tokens that an image, sound or file behind a link may count for; one that is sent along is bounded by its bytes."""
MOST_TIMES_IN, MOST_TIMES_OUT = 100, 10
"""Counts above the bound by these factors are not believed. Servers add to a prompt (tools of their own, pages that they read),
but keep to ``max_tokens``."""


@dataclass(frozen=True, slots=True)
class AttemptBound:
    """The most tokens of one attempt. Every token of the prompt stands for at least one of its bytes.

    Args:
        tokens_in: tokens of the prompt, with those that the server may add.
        tokens_out: the longest answer, hidden reasoning included.
        writes_cache: whether the prompt asks to be written to a prompt cache, which may cost more than reading it.
        asks_for_an_hour: whether it asks to be kept for an hour.
    """

    tokens_in: int
    tokens_out: int
    writes_cache: bool = False
    asks_for_an_hour: bool = False

    @classmethod
    def of(cls, prompt: str, *, max_tokens: int, links: int = 0, writes_cache: bool = False) -> AttemptBound:
        """Return the bound for a prompt with ``links`` to attachments."""
        return cls(
            len(prompt.encode("utf-8", "surrogatepass")) + TEMPLATE_TOKENS + ATTACHMENT_TOKENS * links, max_tokens, writes_cache
        )

    def usd(self, price: Price) -> float:
        """Return the most dollars of the attempt."""
        asks = {"writes_cache": self.writes_cache, "asks_for_an_hour": self.asks_for_an_hour}
        return price.most_usd(self.tokens_in, self.tokens_out, **asks)

    def believes(self, counts: Counts) -> bool:
        """Return whether a server's counts are possible at all."""
        return 0 < counts.tokens_in <= MOST_TIMES_IN * self.tokens_in and counts.tokens_out <= MOST_TIMES_OUT * self.tokens_out


@dataclass(frozen=True, slots=True)
class TransportRequest:
    """One request. ``body`` holds the arguments of the provider's SDK, ``prompt_chars`` the length of the prompt."""

    body: Mapping[str, Any]
    prompt_chars: int
    is_streamed: bool


class Transport(ABC):
    """A provider's transport. One instance serves all threads and event loops."""

    finish_failures: Mapping[str, FailureKind] = MappingProxyType({})
    """Finish reasons that are failures."""

    @abstractmethod
    def check(self, model: Model) -> None:
        """Raise :class:`~vinelm.errors.ConfigError` if the model's key or SDK is missing. Makes no call."""

    @abstractmethod
    def request(
        self, model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
    ) -> TransportRequest:
        """Build the request. Raises :class:`~vinelm.errors.ConfigError` for options that the backend sets itself."""

    @staticmethod
    @abstractmethod
    def attempt_bound(body: Mapping[str, Any]) -> AttemptBound:
        """Return the most tokens that one attempt can cost."""

    takes_marks = False
    """Whether the provider keeps prefixes of a prompt only where it is marked; else :meth:`marked` helps it to find them."""

    def prompt_parts(self, body: Mapping[str, Any]) -> Sequence[str]:
        """Return the canonical text of each part that a cache mark can follow, in the order in which the cache reads them.

        Empty if the application has placed its own marks, or a request can do nothing for the provider's cache.
        """
        return ()

    def marked(self, model: Model, body: Mapping[str, Any], marks: Collection[int], first: int) -> Mapping[str, Any]:
        """Return a copy of the body with cache marks.

        Args:
            model: the entry.
            body: that of :meth:`request`.
            marks: indices of :meth:`prompt_parts`.
            first: digest of the first part, for providers that keep calls with equal keys together.
        """
        return body

    @abstractmethod
    def connect(self, model: Model) -> None:
        """Import the SDK and create its client, before the latency of an attempt is measured."""

    async def aconnect(self, model: Model) -> None:
        """Like :meth:`connect`, for the client of the running event loop."""
        self.connect(model)

    @abstractmethod
    def send(self, model: Model, request: TransportRequest) -> Generator[Delta]:
        """Make one attempt. The first piece marks the start of the response; closing the generator releases the connection."""

    @abstractmethod
    def asend(self, model: Model, request: TransportRequest) -> AsyncGenerator[Delta]:
        """Like :meth:`send`, for a coroutine."""

    def output_options(self, model: Model, asked: Structured) -> Mapping[str, Any] | None:
        """Return the options by which the provider itself is asked for an answer of a schema; None: by a forced tool call.

        Raises:
            ConfigError: the arguments of ``with_structured_output`` do not fit together.
        """
        return None

    @staticmethod
    @abstractmethod
    def failed(error: Exception) -> AttemptFailed | None:
        """Translate an exception of the SDK; None if neither the server nor the network caused it."""

    def context_tokens(self, model: Model) -> int | None:
        """Return the context length in tokens; None if the server does not report it. Costs nothing."""
        return None

    def rehearsal(self) -> Transport | None:
        """Return a transport of the same kind that makes calls without a network; None if there is none.

        Its SDK clients answer from memory: no key, no connection, no thread.
        """
        return None

    def batches(self) -> BatchApi | None:
        """Return the provider's batches, whose calls cost half; None if it has none."""
        return None

    def close(self) -> None:
        """Close the connections of synchronous calls."""
        return None


class FoundBatch(NamedTuple):
    """What the provider's list says of one of our batches: its id, and whether it is certain that None means never sent."""

    provider_id: str | None
    is_certain: bool = True


class BatchApi(ABC):
    """The batches of one provider. Used by one thread. What its SDK raises is translated by :meth:`failed`.

    Attributes:
        halves_cache: reading and writing a prompt cache costs half as well.
        most_calls: in one batch.
        most_bytes: of one batch's requests.
    """

    REST: ClassVar = "*"
    """In :meth:`answers`, what holds of every call that is not named."""
    halves_cache: bool = False
    most_calls: int = 10_000
    most_bytes: int = 100 << 20

    @abstractmethod
    def submit(self, model: Model, key: str, calls: Mapping[str, TransportRequest]) -> str:
        """Send a batch that carries our key, with each call under its name, and return the provider's id of it."""

    @abstractmethod
    def find(self, model: Model, key: str, since_s: float, calls: int, known: frozenset[str]) -> FoundBatch:
        """Search the provider's list for the batch with our key.

        Args:
            model: of its calls.
            key: ours.
            since_s: Unix time before which it was not sent.
            calls: how many it has.
            known: ids of batches that are others.
        """

    @abstractmethod
    def answers(self, model: Model, provider_id: str) -> Sequence[tuple[str, Mapping[str, Any]]] | None:
        """Return what the provider says of each call, by its name: ``{"body": ...}`` or a failure. None while it goes on.

        All that it says, even if it says it twice or of calls that were never sent. A batch goes on unless the provider's word
        for how it stands is one of those that end it: one that nobody knows may be of a batch that is paid for in the end.
        """

    @abstractmethod
    def parsed(self, model: Model, body: Mapping[str, Any]) -> Delta:
        """Parse the body of an answer; :class:`AttemptFailed` (malformed) if it is none."""

    @abstractmethod
    def failed(self, error: Exception) -> AttemptFailed | None:
        """See :meth:`Transport.failed`."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True, slots=True)
class CallBinding:
    """The needs of a remote chat model for one invocation.

    ``streams``: also stream calls that ask for a whole answer, to measure the time to first token. ``priority_sign``: 1 or -1
    sends the request's priority, times that, to the server; 0 does not. ``prompts`` admits attempts of a model with cache
    points; None for others. ``list_price``: the model's ordinary price, where the call goes in a batch and ``model`` has the
    price of that; its seconds are not known. ``chosen`` returns, for the request of such a call, the binding by which it is
    made at once, or in a batch; None: this one. ``is_owed``: an earlier run has bought the call, and its answer is fetched.
    """

    transport: Transport
    model: Model
    call: CallContext
    rate_limiter: RateLimiter
    policy: RetryPolicy
    streams: bool
    priority_sign: int = 0
    prompts: AdmitsPrompts | None = None
    list_price: Price | None = None
    chosen: Callable[[TransportRequest], CallBinding] | None = None
    is_owed: bool = False
