"""The interface that each provider implements in addition to its LangChain package, and the settings of one call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from langchain_core.language_models import BaseChatModel
from langchain_core.outputs import ChatGenerationChunk, ChatResult

from vinelm.backends.limits.prompt_admission import AdmitsPrompts
from vinelm.backends.remote.inner import InnerChat
from vinelm.backends.remote.marks import Marks
from vinelm.backends.remote.meter import ModelRequest
from vinelm.backends.remote.retry import AttemptFailed, RetryPolicy
from vinelm.catalog import Model, Price
from vinelm.requests.protocols import CallContext, RateLimiter

Piece: TypeAlias = ChatGenerationChunk | ChatResult
"""A piece of a streamed answer, or a whole one, as the inner chat model gave it."""


CHAT, RESPONSES = "chat/completions", "responses"
"""OpenAI's two forms of a call, by the end of their URLs."""


class ChatAddress(NamedTuple):
    """What is needed to send raw HTTP requests in one of OpenAI's two formats to the server of a catalog entry.

    Attributes:
        url: the endpoint's address.
        headers: the headers that the server requires, including its key.
        body: fields that the options of the catalog entry add to each request's body.
        limit: name of the parameter that limits the length of an answer.
    """

    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    limit: str


class Provider(ABC):
    """One provider of models, such as OpenAI: creates the chat models of its catalog entries. One instance serves all threads
    and event loops. It never calls a model itself.

    Attributes:
        streams: whether calls that ask for a whole answer are streamed by default, to measure the time to first token.
        marks: marks the parts of a prompt that the provider should cache; None if requests cannot control the cache.
    """

    streams: bool = True
    marks: Marks | None = None

    @abstractmethod
    def check(self, model: Model) -> None:
        """Raise :class:`~vinelm.errors.ConfigError` if the key or package for ``model`` is missing, or an option is invalid."""

    @abstractmethod
    def make(self, model: Model) -> BaseChatModel:
        """Return a new chat model for ``model``, a catalog entry; raise :class:`~vinelm.errors.ConfigError` if that fails."""

    def inner(self, model: Model) -> InnerChat:
        """Return a new :class:`InnerChat` around a chat model for ``model``. If needed, it makes further chat models for other
        event loops.
        """
        return InnerChat(self.make(model), lambda: self.make(model))

    def context_tokens(self, model: Model) -> int | None:
        """Return the context length in tokens; None if the server does not report it. Costs nothing."""
        return None

    def wire(self, model: Model, form: str = CHAT) -> ChatAddress | None:
        """Return the URL, headers and body fields for sending raw HTTP requests to the server of the catalog entry ``model``.

        LangChain's package for the provider is then not used. ``form`` is the format of the requests: :data:`CHAT` or
        :data:`RESPONSES`. Returns None if the server does not take the format, or if an option of the entry works only through
        the package.

        Raises:
            ConfigError: the entry's key is missing.
        """
        return None

    def batches(self) -> BatchApi | None:
        """Return the interface to the provider's batches, in which calls cost half the price; None if the provider has no
        batches.
        """
        return None

    def keeps_by_key(self, model: Model) -> bool:
        """Return whether requests may have the parameter ``prompt_cache_key``, by which the provider's prompt cache groups
        prompts.
        """
        return False


class FoundBatch(NamedTuple):
    """The result of a search for our batch in the provider's list. ``provider_id`` is the batch's id; None if it is not listed.

    ``is_certain`` tells whether a missing id proves that the batch was never sent.
    """

    provider_id: str | None
    is_certain: bool = True


class BatchApi(ABC):
    """The interface to the batches of one provider. Used by one thread. Callers translate the SDK's errors.

    Attributes:
        halves_cache: whether reading and writing a prompt cache also costs half the price.
        most_calls: maximum number of calls in one batch.
        most_bytes: maximum size of one batch's requests in bytes.
        chat_of: returns the chat model of a catalog entry, which parses the answers to the entry's calls.
    """

    REST: ClassVar = "*"
    """The name, in :meth:`answers`, for the result of all calls that are not named."""
    halves_cache: bool = False
    most_calls: int = 10_000
    most_bytes: int = 100 << 20
    chat_of: Callable[[Model], BaseChatModel]

    @abstractmethod
    def body(self, chat: BaseChatModel, request: ModelRequest) -> Mapping[str, Any]:
        """Return the body of one call's request, as the entry's chat model builds it."""

    @abstractmethod
    def submit(self, model: Model, key: str, calls: Mapping[str, Mapping[str, Any]]) -> str:
        """Send a batch and return the id that the provider gives it.

        Args:
            model: the model of the calls.
            key: our key of the batch, by which :meth:`find` finds it.
            calls: the body of each call's request, by the call's name.
        """

    @abstractmethod
    def find(self, model: Model, key: str, since_s: float, calls: int, known: frozenset[str]) -> FoundBatch:
        """Search the provider's list for the batch that was submitted with our key, and return the result of the search.

        Args:
            model: the model of the batch's calls.
            key: our key.
            since_s: earliest Unix time at which the batch may have been sent.
            calls: number of calls in the batch.
            known: ids of other batches.
        """

    @abstractmethod
    def answers(self, model: Model, provider_id: str) -> Sequence[tuple[str, Mapping[str, Any]]] | None:
        """Return the provider's results as pairs: the call's name, and ``{"body": ...}`` or a failure. Return None while the
        batch runs.

        Includes everything that the provider reports, even duplicates or calls that were never sent. A batch counts as running
        unless its status is a known final status, because an unknown status may belong to a batch that is billed in the end.
        """

    @abstractmethod
    def parsed(self, model: Model, body: Mapping[str, Any]) -> ChatResult:
        """Return ``body``, an answer as JSON, as the chat result that the LangChain chat model of ``model`` makes of it.

        An exception means that the answer is malformed.
        """

    def close(self) -> None:
        """Close the connections to the provider."""
        return None


class Sends(Protocol):
    """The interface of an object that sends calls, either to the chat model of a catalog entry or in a provider's batch."""

    def ready(self, entry: Model) -> InnerChat:
        """Return the chat model of the catalog entry ``entry``.

        Called before the latency of a call is measured, so that the time to create the chat model does not count.
        """

    def around(self, inner: InnerChat) -> Sends:
        """Return a copy of this object that sends calls to ``inner``, a chat model with other settings."""

    def send(self, entry: Model, request: ModelRequest) -> Generator[Piece]:
        """Send the request once, and yield the pieces of the answer. Closing the generator ends the attempt."""

    def asend(self, entry: Model, request: ModelRequest) -> AsyncGenerator[Piece]:
        """Send the request once, and yield the pieces of the answer, like :meth:`send`, without blocking the event loop."""


@dataclass(frozen=True, slots=True)
class CallBinding:
    """What a remote chat model needs for one execution of a step.

    Attributes:
        inner: the chat model that builds tools and schemas.
        own_limit: the answer limit of the application's object, used instead of the entry's limit; None if the object sets
            none.
        streams: whether to stream even calls that ask for a whole answer, to measure the time to first token.
        priority_sign: the server gets the request's priority times this number, 1 or -1; 0 sends no priority.
        prompts: admits attempts of a model whose prompts are cached (``cache_points``); None for other models.
        list_price: the model's ordinary price if the call goes in a batch, so that its latency is unknown; None otherwise.
            ``model`` then has the batch price.
        chosen: for runs at batch prices: returns the binding to use for one request, which makes the call directly or in a
            batch. None uses this binding for every request.
        is_owed: whether a recorded batch already contains the call, so that the answer is only fetched.
    """

    provider: Provider
    sender: Sends
    inner: InnerChat
    model: Model
    call: CallContext
    rate_limiter: RateLimiter
    policy: RetryPolicy
    streams: bool
    priority_sign: int = 0
    prompts: AdmitsPrompts | None = None
    list_price: Price | None = None
    chosen: Callable[[ModelRequest], CallBinding] | None = None
    is_owed: bool = False
    own_limit: int | None = None


def failure_of(record: Mapping[str, Any]) -> AttemptFailed:
    """Return the failure that ``record``, a batch's result for a call, states in its keys ``failure``, ``detail`` and
    ``may_be_billed``.
    """
    return AttemptFailed(record["failure"], record["detail"], is_final=True, may_be_billed=record["may_be_billed"])
