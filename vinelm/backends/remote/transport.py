"""What a provider's own code has to do: how to ask, how to read the answer, how to read its errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from langchain_core.messages import BaseMessage

from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.retry import AttemptFailed, RetryPolicy
from vinelm.catalog import Model
from vinelm.errors import FailureKind
from vinelm.protocols import CallContext, RateLimiter


@dataclass(frozen=True, slots=True)
class TransportRequest:
    """What one call sends. ``prompt_chars`` is the size of its prompt, ``body`` what the provider's SDK takes."""

    body: Mapping[str, Any]
    prompt_chars: int
    is_streamed: bool


class Transport(Protocol):
    """One provider: how to ask, how to read the answer, how to read its errors."""

    finish_failures: Mapping[str, FailureKind]
    """Finish reasons that are failures."""

    def check(self, model: Model) -> None:
        """:class:`~vinelm.errors.ConfigError` if the model cannot be called: no key, no SDK. Calls nobody."""

    def request(
        self, model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
    ) -> TransportRequest:
        """What to send. Pure. :class:`~vinelm.errors.ConfigError` for options that the backend decides itself."""

    def upper_bound_usd(self, model: Model, body: Mapping[str, Any]) -> float:
        """Dollars that a call with that body cannot exceed, repeated attempts included."""

    def connect(self, model: Model) -> None:
        """Load the SDK and make its client, before the clock of an attempt starts."""

    async def aconnect(self, model: Model) -> None:
        """The same for a coroutine, whose event loop has a client of its own."""

    def send(self, model: Model, request: TransportRequest) -> Generator[Delta]:
        """One attempt. The first piece says that the server began to answer; closing ends the connection's use."""

    def asend(self, model: Model, request: TransportRequest) -> AsyncGenerator[Delta]:
        """The same for a coroutine."""

    def failed(self, error: Exception) -> AttemptFailed | None:
        """What an exception of the SDK means; None for one that is not the server's or the network's doing."""

    def close(self) -> None:
        """Close the connections of synchronous calls."""


@dataclass(frozen=True, slots=True)
class CallBinding:
    """What a backend gives each of its chat models. ``streams`` says that whole answers are streamed too, for their TTFT."""

    wire: Transport
    model: Model
    call: CallContext
    gate: RateLimiter
    policy: RetryPolicy
    streams: bool
