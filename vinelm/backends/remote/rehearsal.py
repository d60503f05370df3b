"""Makes calls that reach no server, before processes are forked, so that no fork repeats what an SDK does at its first calls.

The SDKs of OpenAI and Anthropic build the types of their answers, read the hints of their requests' types and ask for the
operating system's name when these are first needed. In a fork that makes a few calls this took half of the processor time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from types import FunctionType
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage

from vinelm.backends.remote.answer_size import library_of
from vinelm.backends.remote.inner import one_attempt, package_of, with_own_connections
from vinelm.foreign_code import answered

_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}}
_USAGE = {
    "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2,
    "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0},
}  # fmt: skip
_FORMAT = {"type": "json_schema", "json_schema": {"name": "f", "schema": _SCHEMA, "strict": True}}
_OF_OPENAI: tuple[dict[str, Any], ...] = (
    {},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": _SCHEMA}}]},
    {"response_format": _FORMAT},
)
_OF_ANTHROPIC: tuple[dict[str, Any], ...] = ({}, {"tools": [{"name": "f", "input_schema": _SCHEMA}]})

_REHEARSED: set[type] = set()


def rehearse(chat: BaseChatModel) -> None:
    """Make calls with a copy of a chat model of LangChain's packages for OpenAI or Anthropic, once for each class.

    Nothing happens for chat models of other packages.

    The copy's HTTP client answers the calls itself. Callbacks, rate limits and tracers do not see them: nothing is called if a
    tracer has replaced the SDK's method. Errors are ignored.
    """
    is_openai = getattr(chat, "root_client", None) is not None
    is_package = type(chat)._generate.__module__.startswith(("langchain_", "vinelm."))  # an owner's class may do anything
    if not is_package or not (is_openai or package_of(chat) == "langchain_anthropic") or type(chat) in _REHEARSED:
        return
    answered(lambda: _rehearse(chat, is_openai=is_openai), None)


def _rehearse(chat: Any, *, is_openai: bool) -> None:
    made: Any
    made, http = with_own_connections(one_attempt(chat), is_async=False, answer=_answer_of_openai if is_openai else _answer)
    if http is None or not _is_own((made.client if is_openai else made._client.messages).create):
        return
    _REHEARSED.add(type(chat))
    for options in _OF_OPENAI if is_openai else _OF_ANTHROPIC:
        for call in (made._generate, made._stream):
            # Versions of the packages differ; without a rehearsal only the first calls are slower.
            answered(partial(_read, call, options), None)
    http.close()
    import anyio  # the SDKs' connections on an event loop

    anyio.run(anyio.sleep, 0)


def _read(call: Callable[..., Iterable[Any]], options: dict[str, Any]) -> None:
    for _ in call([HumanMessage("a")], **options):
        pass


def _is_own(method: Any) -> bool:
    """Return whether a method is defined by the SDK. A tracer replaces it with a function of another module."""
    function = getattr(method, "__func__", None)
    return isinstance(function, FunctionType) and function.__globals__["__name__"].startswith(("openai.", "anthropic."))


def _answer_of_openai(request: Any) -> Any:
    asked = json.loads(request.content)
    head: dict[str, Any] = {"id": "r", "created": 0, "model": "m", "usage": _USAGE}
    said: dict[str, Any] = {"role": "assistant", "content": '{"a": "b"}'}
    if "tools" in asked:
        said |= {"content": None, "tool_calls": [_CALL]}
    if not asked.get("stream"):
        choice = {"index": 0, "message": said, "finish_reason": "stop", "logprobs": None}
        return _response(request, json=head | {"object": "chat.completion", "choices": [choice]})
    said |= {"tool_calls": [_CALL | {"index": 0}]} if "tools" in asked else {}
    choice = {"index": 0, "delta": said, "finish_reason": "stop"}
    return _events(request, [("", head | {"object": "chat.completion.chunk", "choices": [choice]})], end="data: [DONE]\n\n")


def _answer(request: Any) -> Any:
    asked = json.loads(request.content)
    usage = {"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    block: dict[str, Any] = {"type": "text", "text": "a"}
    part: dict[str, Any] = {"type": "text_delta", "text": "a"}
    if "tools" in asked:
        block = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": "b"}}
        part = {"type": "input_json_delta", "partial_json": '{"a": "b"}'}
    head = {"id": "r", "type": "message", "role": "assistant", "model": "m", "usage": usage, "stop_sequence": None}
    if not asked.get("stream"):
        return _response(request, json=head | {"content": [block], "stop_reason": "end_turn"})
    nothing: dict[str, Any] = {"input": {}} if "tools" in asked else {"text": ""}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": head | {"content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": block | nothing},
        {"type": "content_block_delta", "index": 0, "delta": part},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return _events(request, [(f"event: {event['type']}\n", event) for event in events])


def _events(request: Any, events: list[tuple[str, dict[str, Any]]], end: str = "") -> Any:
    text = "".join(f"{name}data: {json.dumps(event)}\n\n" for name, event in events) + end
    return _response(request, headers={"content-type": "text/event-stream"}, content=text.encode())


def _response(request: Any, **said: Any) -> Any:
    return library_of(request.__class__).Response(200, request=request, **said)
