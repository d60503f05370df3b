"""Makes attempts on a catalog's chat models, and passes requests and answers through unchanged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.outputs import ChatGenerationChunk

from vinelm.backends.remote.conversation import carried_to
from vinelm.backends.remote.deadlines import Deadline, task_deadline
from vinelm.backends.remote.inner import InnerChat, limit_field, limit_of
from vinelm.backends.remote.loop import athreaded, iterated, late, threaded
from vinelm.backends.remote.meter import ModelRequest
from vinelm.backends.remote.provider import Piece
from vinelm.backends.remote.retry import was_sent
from vinelm.catalog import Model


class ChatSender:
    """Sends calls directly to the chat models of catalog entries, one attempt at a time; implements
    :class:`~vinelm.backends.remote.provider.Sends`.

    Args:
        inner_of: returns the chat model of a catalog entry.
    """

    def __init__(self, inner_of: Callable[[Model], InnerChat]) -> None:
        self._inner_of = inner_of

    def ready(self, entry: Model) -> InnerChat:
        """Return the chat model of the catalog entry ``entry``, ready to be called."""
        return self._inner_of(entry)

    def around(self, inner: InnerChat) -> ChatSender:
        """Return a sender that sends all calls to ``inner``, a chat model with other settings."""
        return ChatSender(lambda entry: inner)

    def send(self, entry: Model, request: ModelRequest) -> Generator[Piece]:
        """Send the request once, as one attempt of a call, and yield the pieces of the answer.

        A deadline ends the attempt after the seconds in the ``timeout_s`` of ``entry``, a catalog entry.

        The attempt runs in this thread if its waits can be ended there, otherwise on an event loop or in a separate thread.
        """
        inner = self._inner_of(entry)
        if (chat := inner.in_time()) is not None:
            return _pieces(chat, request, entry.timeout_s)
        if inner.is_asynchronous:
            return iterated(self.asend(entry, request))
        return threaded(lambda: _pieces(inner.sync(), request, entry.timeout_s), entry.timeout_s)

    def asend(self, entry: Model, request: ModelRequest) -> AsyncGenerator[Piece]:
        """Send the request once, like :meth:`send`, without blocking the event loop."""
        inner = self._inner_of(entry)
        if inner.has_asynchronous:
            return _apieces(inner, request, entry.timeout_s)
        return athreaded(lambda: _pieces(inner.sync(), request, entry.timeout_s), entry.timeout_s)


def _pieces(chat: BaseChatModel, request: ModelRequest, timeout_s: float) -> Generator[Piece]:
    """Yield the pieces of a chat model's answer. Raise :class:`AttemptFailed` if ``timeout_s`` ended a wait."""
    deadline = Deadline(timeout_s)
    try:
        chat, options = asked(chat, request)
        messages = carried_to(chat, request.messages)
        if not request.is_streamed:
            with deadline:
                result = chat._generate(messages, stop=request.stop, **options)
            yield result
            return
        with closing(chat._stream(messages, stop=request.stop, **options)) as chunks:  # type: ignore[type-var]
            while True:
                with deadline:  # the deadline is not active while the caller has the piece
                    chunk: ChatGenerationChunk | None = next(chunks, None)
                if chunk is None:
                    return
                yield chunk
    except Exception as error:  # a call that was cut off raises what its client makes of that
        if not deadline.has_struck:
            raise
        sent = was_sent(error)
    raise late(timeout_s, may_be_billed=sent)


async def _apieces(inner: InnerChat, request: ModelRequest, timeout_s: float) -> AsyncGenerator[Piece]:
    chat, options = asked(await inner.here(), request)
    messages = carried_to(chat, request.messages)
    until, ends_at = asyncio.get_running_loop().time() + timeout_s, time.monotonic() + timeout_s
    try:
        if not request.is_streamed:
            async with asyncio.timeout_at(until):
                with task_deadline(ends_at):
                    result = await chat._agenerate(messages, stop=request.stop, **options)
            yield result
            return
        async with aclosing(chat._astream(messages, stop=request.stop, **options)) as chunks:  # type: ignore[type-var]
            while True:
                async with asyncio.timeout_at(until):
                    with task_deadline(ends_at):
                        chunk: ChatGenerationChunk | None = await anext(chunks, None)
                if chunk is None:
                    return
                yield chunk
    except TimeoutError:
        if asyncio.get_running_loop().time() < until:
            raise
    raise late(timeout_s)


def asked(chat: BaseChatModel, request: ModelRequest) -> tuple[BaseChatModel, dict[str, Any]]:
    """Apply a request to a chat model.

    Returns:
        The chat model, or a copy with the request's answer limit and without the settings that the model refuses; and the
            options to call it with.
    """
    options = {key: value for key, value in request.options.items() if key not in request.dropped}
    update: dict[str, Any] = {}
    own = limit_of(chat)
    if own != request.limit and (own is not None or request.is_limit_asked) and (field := limit_field(chat)) is not None:
        update[field] = request.limit
    for name in request.dropped:
        if name == "stream_options":
            update["stream_usage"] = False
        elif getattr(chat, name, None) is not None:
            update[name] = None
        more = update.get("model_kwargs", getattr(chat, "model_kwargs", None))
        if isinstance(more, dict) and name in more:
            update["model_kwargs"] = {key: value for key, value in more.items() if key != name}
    return (chat.model_copy(update=update) if update else chat), options
