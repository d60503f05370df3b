"""The answer of a chat model in chunks; one that does not stream gives it in one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk

from vinelm.adapters.calls.tool_binding import whole_chunk


def chunks(model: BaseChatModel, messages: list[BaseMessage], options: Mapping[str, Any]) -> Generator[ChatGenerationChunk]:
    """Yield the answer of the model, whose own form the options have. Spends money."""
    if model.rate_limiter:
        model.rate_limiter.acquire(blocking=True)
    if _streams(model, options, asynchronously=False):
        yield from model._stream(messages, **options)
    else:
        yield whole_chunk(model._generate(messages, **options))


async def achunks(
    model: BaseChatModel, messages: list[BaseMessage], options: Mapping[str, Any]
) -> AsyncGenerator[ChatGenerationChunk]:
    """Like :func:`chunks`, for a coroutine."""
    if model.rate_limiter:
        await model.rate_limiter.aacquire(blocking=True)
    if _streams(model, options, asynchronously=True):
        async for chunk in model._astream(messages, **options):
            yield chunk
    else:
        yield whole_chunk(await model._agenerate(messages, **options))


def _streams(model: BaseChatModel, options: Mapping[str, Any], *, asynchronously: bool) -> bool:
    kind, off = type(model), model.disable_streaming
    is_native = kind._stream is not BaseChatModel._stream or (asynchronously and kind._astream is not BaseChatModel._astream)
    return is_native and off is not True and not (off == "tool_calling" and options.get("tools"))
