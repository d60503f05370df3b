"""A client of the openai SDK whose chat completions are invocations of a stage: nothing is sent by the SDK itself."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_messages, convert_to_openai_messages
from langchain_core.messages.ai import add_usage
from langchain_core.prompt_values import ChatPromptValue

from vinelm.adapters.calls.tool_binding import OPENAI_BODY, PARALLEL
from vinelm.adapters.langgraph.structure.chat_search import CHAT_MARK
from vinelm.errors import UNSUPPORTED_CALL, CallError, ConfigError, VineLMError, WorkflowError
from vinelm.extras import required_extra
from vinelm.one_process import OneProcess

ONE = {name: getattr(OneProcess, name) for name in ("__copy__", "__deepcopy__", "__reduce_ex__")}
_REFUSED = "VineLM serves chat.completions.create of the openai SDK, and nothing else: use it, or vine.chat_model()"
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
"""HTTP status and code by which the SDK raises its own error for a failure of ours; others are the server's (500)."""
_ENDS: Mapping[str, str] = MappingProxyType(
    {
        "tool_calls": "tool_calls",
        "tool_use": "tool_calls",
        "function_call": "tool_calls",
        "length": "length",
        "max_tokens": "length",
    }
)


def openai_client(vine: Any, chat_of: Callable[[str], BaseChatModel], stage: str | None, *, is_async: bool) -> Any:
    """Return an ``OpenAI`` or ``AsyncOpenAI`` whose ``chat.completions`` call chat models that ``vine`` made, of that stage.

    Args:
        vine: makes the chat models.
        chat_of: returns the chat model of a call that asks for a model by this name.
        stage: name of the stage; None for that of the node that makes the call.
        is_async: whether it is the SDK's client for coroutines.

    Raises:
        ConfigError: the openai SDK is not installed.
    """
    try:
        import openai
    except ImportError as error:
        raise ConfigError("a client of the openai SDK needs that: pip install openai") from error
    from vinelm.backends.openai.http_library import http_library

    httpx = http_library()

    def begun(request: Any) -> tuple[BaseChatModel, Any, list[BaseMessage], dict[str, Any]]:
        if not request.url.path.endswith("/chat/completions"):
            raise WorkflowError(_REFUSED)
        body = json.loads(request.content)
        chat = chat_of(str(body.get("model", "")))
        return chat, body, *_asked(chat, body)

    def answer(request: Any) -> Any:
        try:
            chat, body, messages, options = begun(request)
            if body.get("stream"):
                return httpx.Response(200, headers=_EVENTS, content=_events(_Answer(body), chat.stream(messages, **options)))
            found = chat.generate_prompt([ChatPromptValue(messages=messages)], **options)
            return httpx.Response(200, headers=_JSON, content=json.dumps(_whole(_Answer(body), found.generations[0])))
        except VineLMError as error:
            return httpx.Response(**_told(error))

    async def aanswer(request: Any) -> Any:
        try:
            chat, body, messages, options = begun(request)
            if body.get("stream"):
                return httpx.Response(200, headers=_EVENTS, content=_aevents(_Answer(body), chat.astream(messages, **options)))
            found = await chat.agenerate_prompt([ChatPromptValue(messages=messages)], **options)
            return httpx.Response(200, headers=_JSON, content=json.dumps(_whole(_Answer(body), found.generations[0])))
        except VineLMError as error:
            return httpx.Response(**_told(error))

    kind, client = (openai.AsyncOpenAI, httpx.AsyncClient) if is_async else (openai.OpenAI, httpx.Client)
    marked = type(f"Vine{kind.__name__}", (kind,), {CHAT_MARK: True, "stage": stage, "vine": vine, **ONE})
    return marked(
        api_key="none",
        base_url="http://vinelm.invalid/v1",
        max_retries=0,  # VineLM repeats calls itself
        http_client=client(transport=httpx.MockTransport(aanswer if is_async else answer)),
    )


def chats_of(client: Any) -> Callable[[str], BaseChatModel]:
    """Return what makes the chat model that a client of the openai SDK calls by a name, with the client's own settings.

    Raises:
        ConfigError: ``langchain-openai`` is not installed; said here, where the client is wrapped, and not at its first call.
    """
    with required_extra("openai", "vine.around of a client of the openai SDK"):
        from langchain_openai import ChatOpenAI
        from openai import DEFAULT_TIMEOUT

    settings = {
        "api_key": getattr(client, "_api_key_provider", None) or client.api_key,
        "base_url": str(client.base_url),
        "organization": client.organization,
        "timeout": None if client.timeout == DEFAULT_TIMEOUT else client.timeout,
        "default_headers": client._custom_headers,
        "default_query": client._custom_query,
    }
    if not type(client._client).__module__.startswith("openai."):  # the application's own: proxies, certificates
        settings["http_async_client" if hasattr(client._client, "aclose") else "http_client"] = client._client
    given = {name: value for name, value in settings.items() if value}
    return lambda name: ChatOpenAI(model=name, **given)


_EVENTS = {"content-type": "text/event-stream"}
_JSON = {"content-type": "application/json"}


def _asked(chat: BaseChatModel, body: Mapping[str, Any]) -> tuple[list[BaseMessage], dict[str, Any]]:
    """The messages of a call, and its options: every parameter of the request."""
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
    """A tool choice as every package takes it: a mode, or the name of a tool."""
    if isinstance(choice, Mapping):
        return (choice.get("function") or {}).get("name")
    return "any" if choice == "required" else choice


# -- answers in OpenAI's form ---------------------------------------------------------------------------------------


class _Answer:
    """The fields that all pieces of an answer have."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.created, self.asked = int(time.time()), str(body.get("model", ""))
        options = body.get("stream_options")
        self.states_usage = isinstance(options, Mapping) and bool(options.get("include_usage"))

    def head(self, message: BaseMessage, kind: str) -> dict[str, Any]:
        """The fields, for an answer or a piece of one."""
        name = message.response_metadata.get("model_name")
        return {"id": message.id or "answer", "object": kind, "created": self.created, "model": str(name or self.asked)}


def _whole(answer: _Answer, generations: list[Any]) -> dict[str, Any]:
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


def _pieces(answer: _Answer, chunk: AIMessageChunk, ends: dict[str, Any]) -> Iterator[bytes]:
    """The event of a chunk; what its last event needs is kept in ``ends``."""
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


def _last(answer: _Answer, ends: Mapping[str, Any]) -> Iterator[bytes]:
    reason = _ENDS.get(str(ends.get("reason")), "tool_calls" if ends.get("has_calls") else "stop")
    head = answer.head(AIMessage(""), "chat.completion.chunk")
    yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    if answer.states_usage:
        total: Any = None
        for usage in ends.get("usages", ()):
            total = add_usage(total, usage)
        yield _event({**head, "choices": [], "usage": _usage([total] if total else [])})
    yield b"data: [DONE]\n\n"


def _events(answer: _Answer, chunks: Iterator[Any]) -> Iterator[bytes]:
    ends: dict[str, Any] = {}
    try:
        for chunk in chunks:
            yield from _pieces(answer, chunk, ends)
    except VineLMError as error:
        yield _event(_told(error)["json"])
        return
    yield from _last(answer, ends)


async def _aevents(answer: _Answer, chunks: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    ends: dict[str, Any] = {}
    try:
        async for chunk in chunks:
            for piece in _pieces(answer, chunk, ends):
                yield piece
    except VineLMError as error:
        yield _event(_told(error)["json"])
        return
    for piece in _last(answer, ends):
        yield piece


def _event(plain: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(plain)}\n\n".encode()  # ASCII: an answer may hold half of a surrogate pair


def _told(error: VineLMError) -> dict[str, Any]:
    """The response by which the SDK raises its own error, with the one line of ours."""
    kind = error.kind if isinstance(error, CallError) else "malformed"
    status, code = _STATUS.get(kind, (500, kind))
    return {
        "status_code": status,
        "json": {"error": {"message": str(error), "type": "vinelm_error", "code": code, "param": None}},
    }
