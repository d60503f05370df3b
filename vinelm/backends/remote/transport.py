"""The base class of a provider's transport: it builds requests, sends them, and parses responses and errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.remote.attempt_bound import AttemptBound
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.retry import AttemptFailed, RetryPolicy
from vinelm.catalog import Model
from vinelm.errors import FailureKind
from vinelm.requests.protocols import CallContext, RateLimiter


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

    def close(self) -> None:
        """Close the connections of synchronous calls."""
        return None


@dataclass(frozen=True, slots=True)
class CallBinding:
    """The needs of a remote chat model for one invocation.

    ``streams``: also stream calls that ask for a whole answer, to measure the time to first token. ``priority_sign``: 1 or -1
    sends the request's priority, times that, to the server; 0 does not.
    """

    transport: Transport
    model: Model
    call: CallContext
    rate_limiter: RateLimiter
    policy: RetryPolicy
    streams: bool
    priority_sign: int = 0
