"""Convert calls and answers between OpenAI's chat completions and LangChain."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_messages, convert_to_openai_messages
from langchain_core.messages.ai import add_usage

from vinelm.adapters.calls.tool_binding import OPENAI_BODY, PARALLEL
from vinelm.errors import UNSUPPORTED_CALL, CallError, VineLMError, WorkflowError

_OURS = ("model", "messages", "stream", "stream_options", "tools", "tool_choice", PARALLEL, "stop")
_LIMITS = ("max_tokens", "max_completion_tokens")
_STATUS: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "auth": (401, "invalid_api_key"),
        "rate_limit": (429, "rate_limit_exceeded"),
        "timeout": (504, "timeout"),
        "context_length": (400, "context_length_exceeded"),
        "content_filter": (400, "content_filter"),
        "truncated": (422, "truncated"),
        "malformed": (400, "invalid_request_error"),
        "budget": (402, "budget_exceeded"),
    }
)
"""HTTP status and error code for each kind of failed call, from which the SDK makes its own exception; other kinds get 500."""
_ENDS: Mapping[str, str] = MappingProxyType(
    {
        "tool_calls": "tool_calls",
        "tool_use": "tool_calls",
        "function_call": "tool_calls",
        "length": "length",
        "max_tokens": "length",
    }
)


def asked_of(chat: BaseChatModel, body: Mapping[str, Any]) -> tuple[list[BaseMessage], dict[str, Any]]:
    """Return the messages and the LangChain options of a call, converted from ``body``, the body of an OpenAI request.

    Tools are bound with the ``bind_tools`` of ``chat``.
    """
    if body.get("stream") and (body.get("n") or 1) > 1:
        raise WorkflowError("a stream has one answer: leave out n, or stream", code=UNSUPPORTED_CALL)
    # A turn that only calls tools has no content, and the SDK's own objects leave it out.
    messages = convert_to_messages([{**message, "content": message.get("content") or ""} for message in body["messages"]])
    more = {key: value for key, value in body.items() if key not in (*_OURS, *_LIMITS) and value is not None}
    options: dict[str, Any] = {OPENAI_BODY: more} if more else {}
    most = [body[name] for name in _LIMITS if body.get(name) is not None]
    if most:
        options["max_tokens"] = min(most)
    stop = body.get("stop")
    if stop is not None:
        options["stop"] = [stop] if isinstance(stop, str) else list(stop)
    if body.get("tools"):
        given = {"tool_choice": _choice(body.get("tool_choice")), PARALLEL: body.get(PARALLEL)}
        bound: Any = chat.bind_tools(body["tools"], **{key: one for key, one in given.items() if one is not None})
        options |= bound.kwargs
    return messages, options


def _choice(choice: Any) -> Any:
    """Convert OpenAI's tool choice to the form that every LangChain package accepts: "auto", "none", "any" or a tool's name."""
    if isinstance(choice, Mapping):
        return (choice.get("function") or {}).get("name")
    return "any" if choice == "required" else choice


class OpenAIAnswer:
    """The fields that all parts of one OpenAI answer share.

    Attributes:
        created: the answer's creation time, in Unix seconds.
        asked: the model's name in the request; empty if the request names no model.
        states_usage: whether a streamed answer ends with a chunk that states the tokens used, because the request asks for it.

    Args:
        body: the body of the request.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.created, self.asked = int(time.time()), str(body.get("model", ""))
        options = body.get("stream_options")
        self.states_usage = isinstance(options, Mapping) and bool(options.get("include_usage"))

    def head(self, message: BaseMessage, kind: str) -> dict[str, Any]:
        """Return the first fields in the body of an answer or a chunk: id, time, model, and the field ``object`` with the value
        ``kind``.
        """
        name = message.response_metadata.get("model_name")
        return {"id": message.id or "answer", "object": kind, "created": self.created, "model": str(name or self.asked)}


def whole_answer(answer: OpenAIAnswer, generations: list[Any]) -> dict[str, Any]:
    """Return the body of a complete (not streamed) answer in OpenAI's format, made from LangChain's ``generations``."""
    messages = [one.message for one in generations]
    choices = [_choice_of(number, message) for number, message in enumerate(messages)]
    usages = [message.usage_metadata for message in messages if message.usage_metadata]
    return {**answer.head(messages[0], "chat.completion"), "choices": choices, "usage": _usage(usages[:1])}


def _choice_of(number: int, answer: AIMessage) -> dict[str, Any]:
    said: Any = convert_to_openai_messages(answer)
    said["content"] = answer.text or None
    for name in ("refusal", "reasoning_content", "annotations"):
        if answer.additional_kwargs.get(name):
            said[name] = answer.additional_kwargs[name]
    reason = _ENDS.get(str(answer.response_metadata.get("finish_reason")), "tool_calls" if said.get("tool_calls") else "stop")
    return {"index": number, "message": said, "finish_reason": reason, "logprobs": answer.response_metadata.get("logprobs")}


def _usage(usages: list[Any]) -> dict[str, Any]:
    usage = usages[0] if usages else {}
    into, out = usage.get("input_token_details") or {}, usage.get("output_token_details") or {}
    return {
        "prompt_tokens": usage.get("input_tokens", 0),
        "completion_tokens": usage.get("output_tokens", 0),
        "total_tokens": usage.get("total_tokens", 0),
        "prompt_tokens_details": {"cached_tokens": into.get("cache_read") or 0},
        "completion_tokens_details": {"reasoning_tokens": out.get("reasoning") or 0},
    }


def _pieces(answer: OpenAIAnswer, chunk: AIMessageChunk, ends: dict[str, Any]) -> Iterator[bytes]:
    """Yield the server-sent events of one chunk of an answer.

    ``ends`` collects, over all chunks of the answer, the values that the final event needs: the finish reason, the usages, and
    whether there are tool calls. It is empty before the first chunk.
    """
    delta: dict[str, Any] = {} if ends else {"role": "assistant"}
    ends.setdefault("reason", None)
    if text := str(chunk.text):
        delta["content"] = text
    if thoughts := chunk.additional_kwargs.get("reasoning_content"):
        delta["reasoning_content"] = thoughts
    if chunk.tool_call_chunks:
        ends["has_calls"] = True
        delta["tool_calls"] = [
            {
                "index": call.get("index") or 0,
                **({"id": call["id"], "type": "function"} if call.get("id") else {}),
                "function": {**({"name": call["name"]} if call.get("name") else {}), "arguments": call.get("args") or ""},
            }
            for call in chunk.tool_call_chunks
        ]
    reason = chunk.response_metadata.get("finish_reason") or chunk.response_metadata.get("stop_reason")
    ends["reason"] = reason or ends["reason"]
    if chunk.usage_metadata:
        ends.setdefault("usages", []).append(chunk.usage_metadata)
    if delta:
        choice = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": chunk.response_metadata.get("logprobs")}
        yield _event({**answer.head(chunk, "chat.completion.chunk"), "choices": [choice]})


def _last(answer: OpenAIAnswer, ends: Mapping[str, Any]) -> Iterator[bytes]:
    reason = _ENDS.get(str(ends.get("reason")), "tool_calls" if ends.get("has_calls") else "stop")
    head = answer.head(AIMessage(""), "chat.completion.chunk")
    yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    if answer.states_usage:
        total: Any = None
        for usage in ends.get("usages", ()):
            total = add_usage(total, usage)
        yield _event({**head, "choices": [], "usage": _usage([total] if total else [])})
    yield b"data: [DONE]\n\n"


def events(answer: OpenAIAnswer, chunks: Iterator[Any]) -> Iterator[bytes]:
    """Yield a streamed answer as server-sent events, in bytes; a failure is reported in the last event."""
    ends: dict[str, Any] = {}
    try:
        for chunk in chunks:
            yield from _pieces(answer, chunk, ends)
    except VineLMError as error:
        yield _event(told(error)["json"])
        return
    yield from _last(answer, ends)


async def aevents(answer: OpenAIAnswer, chunks: AsyncIterator[Any], *, tells: bool = True) -> AsyncIterator[bytes]:
    """Yield a streamed answer as server-sent events, like :func:`events`, without blocking the event loop.

    With ``tells=False`` a failure is raised instead of being reported in the last event.
    """
    ends: dict[str, Any] = {}
    try:
        async for chunk in chunks:
            for piece in _pieces(answer, chunk, ends):
                yield piece
    except VineLMError as error:
        if not tells:
            raise
        yield _event(told(error)["json"])
        return
    for piece in _last(answer, ends):
        yield piece


def _event(plain: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(plain)}\n\n".encode()  # ASCII: an answer may hold half of a surrogate pair


def told(error: VineLMError) -> dict[str, Any]:
    """Return ``status_code`` and ``json`` for an HTTP response that reports ``error``. From this response the openai SDK
    builds an exception with the same message.
    """
    kind = error.kind if isinstance(error, CallError) else "malformed"
    status, code = _STATUS.get(kind, (500, kind))
    return {"status_code": status, "json": error_body(status, str(error), code)}


def error_body(status: int, message: str, code: str = "bad_request", param: str | None = None) -> dict[str, Any]:
    """Return the body of an error in OpenAI's format, for a response with this HTTP status.

    ``code`` and ``param`` are OpenAI's fields of these names; ``param`` is the request's field that is wrong.
    """
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
