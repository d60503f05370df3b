"""A chat model of langchain-openai for servers that speak OpenAI's protocol and are not OpenAI.

langchain-openai reads only what OpenAI's own answers have. Other servers send their reasoning next to the content or
inside it, and expect it back with tool results (DeepSeek, Kimi). They may answer a streamed call with a whole answer or
an error. If a provider has its own package, prefer that (``provider = "langchain"``, ``model = "deepseek:..."``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import openai
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai.chat_models.base import BaseChatOpenAI

from vinelm.backends.openai.http_library import http_library

_THOUGHTS = ("reasoning_content", "reasoning")
_MISSING_THOUGHT = "(not recorded)"
"""Placeholder for the thoughts of another model's tool calls, for servers that require some."""


class CompatibleChat(BaseChatOpenAI):
    """A chat model that reads a server's reasoning and sends it back to the server.

    It also reads whole answers to streamed calls, and errors that a server sends in place of an answer.
    """

    limit_parameter: str = "max_tokens"
    """The server's name for the limit of an answer; only OpenAI has the newer name."""

    @property
    def _llm_type(self) -> str:
        return "openai-chat"

    @property
    def http_clients(self) -> tuple[type[Any], type[Any]]:
        """The model's synchronous and asynchronous HTTP client classes."""
        return event_clients()

    def with_structured_output(self, schema: Any = None, *, method: Any = "json_schema", **kwargs: Any) -> Any:
        """Return a runnable of this model whose answers follow ``schema``. By default the request asks for JSON of that schema
        instead of forcing a tool call, because engines and gateways support this.
        """
        return super().with_structured_output(schema, method=method, **kwargs)

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        payload: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        limit = payload.pop("max_completion_tokens", None) or payload.pop("max_tokens", None)
        if limit is not None:
            payload[self.limit_parameter] = limit
        messages = self._convert_input(input_).to_messages()
        if isinstance(payload.get("messages"), list) and len(messages) == len(payload["messages"]):
            _give_back(messages, payload["messages"])
        if not payload.get("tools"):  # an agent without tools sends an empty list, which servers refuse
            payload.pop("tools", None)
        return payload

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        choices = chunk.get("choices") or ()
        thoughts = ""
        for choice in choices:
            if "message" in choice and not choice.get("delta"):  # a whole answer, although a stream was requested
                choice["delta"] = choice["message"]
                for number, call in enumerate(choice["delta"].get("tool_calls") or ()):
                    call.setdefault("index", number)
            thoughts += _taken_apart(choice.get("delta"))
        _count_writes(chunk.get("usage"))
        found: ChatGenerationChunk | None = super()._convert_chunk_to_generation_chunk(
            chunk, default_chunk_class, base_generation_info
        )
        if found is not None:
            _keep(found.message, thoughts, choices)
            if not choices and isinstance(chunk.get("usage"), dict):  # in the form that a whole answer has
                found.message.response_metadata["token_usage"] = chunk["usage"]
        return found

    def _create_chat_result(self, response: Any, generation_info: dict[str, Any] | None = None) -> ChatResult:
        # What the SDK has parsed by a schema is not JSON: it is put back unchanged.
        plain = response if isinstance(response, dict) else response.model_dump(warnings=False)
        if isinstance(plain.get("error"), Mapping):
            request = http_library().Request("POST", "http://answer.invalid")  # the SDK's exception requires a request
            body = {**plain["error"], "usage": plain.get("usage")}
            raise openai.APIError(str(plain["error"].get("message", "")), request, body=body)
        choices = plain.get("choices") or ()
        thoughts = "".join(_taken_apart(choice.get("message")) for choice in choices)
        for choice in choices:
            for call in choice["message"].get("tool_calls") or ():
                arguments = (call.get("function") or {}).get("arguments")
                if isinstance(arguments, dict):  # some servers parse them already
                    call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
        _count_writes(plain.get("usage"))
        result: ChatResult = super()._create_chat_result(plain, generation_info)
        for generation, choice in zip(result.generations, getattr(response, "choices", None) or choices, strict=False):
            _keep(generation.message, thoughts, choices)
            if (parsed := getattr(getattr(choice, "message", None), "parsed", None)) is not None:
                generation.message.additional_kwargs["parsed"] = parsed
        return result


def _give_back(messages: Sequence[BaseMessage], sent: list[dict[str, Any]]) -> None:
    """Put the model's earlier reasoning back into the messages of a request, next to the tool calls that followed it.

    A server that sends reasoning expects it back together with the tool results. ``messages`` contain the reasoning, and
    ``sent`` has the same messages as the request sends them; it is changed in place.
    """
    wanted = any(isinstance(one, AIMessage) and one.additional_kwargs.get("reasoning_content") for one in messages)
    for message, body in zip(messages, sent, strict=True):
        if wanted and isinstance(message, AIMessage) and body.get("tool_calls"):
            body["reasoning_content"] = message.additional_kwargs.get("reasoning_content") or _MISSING_THOUGHT


def _taken_apart(said: Any) -> str:
    """Change a server's answer in place so that its content is text without reasoning, and return the reasoning; "" without
    reasoning.
    """
    if not isinstance(said, dict):
        return ""
    thoughts = next((said[key] for key in _THOUGHTS if isinstance(said.get(key), str)), "")
    if isinstance(said.get("content"), list):
        text = ""
        for part in said["content"]:
            if isinstance(part, Mapping) and part.get("type") == "thinking":
                inner = part.get("thinking")
                thoughts += inner if isinstance(inner, str) else "".join(one.get("text", "") for one in inner or ())
            elif isinstance(part, Mapping):
                text += str(part.get("text") or "")
        said["content"] = text
    return thoughts


def _count_writes(usage: Any) -> None:
    """Copy the count of prompt cache writes from LiteLLM's field name to the name that langchain-openai reads."""
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    if isinstance(details, dict) and details.get("cache_write_tokens") is None:
        written = details.get("cache_creation_tokens") or usage.get("cache_creation_input_tokens")
        if isinstance(written, int):
            details["cache_write_tokens"] = written


def _keep(message: BaseMessage, thoughts: str, choices: Sequence[Any]) -> None:
    if thoughts:
        message.additional_kwargs["reasoning_content"] = thoughts
    for choice in choices:
        said = choice.get("delta") or choice.get("message") or {}
        if isinstance(said, Mapping) and isinstance(said.get("refusal"), str) and said["refusal"]:
            message.additional_kwargs["refusal"] = said["refusal"]
        if isinstance(said, Mapping) and said.get("annotations"):
            message.additional_kwargs["annotations"] = said["annotations"]


@cache
def event_clients() -> tuple[type[Any], type[Any]]:
    """Return sync and async HTTP client classes that present a whole answer to a streamed call as a single event.

    Without these classes the SDK finds no event in such an answer, and drops answers and errors alike.
    """

    class EventClient(openai.DefaultHttpxClient):
        def send(self, request: Any, **kwargs: Any) -> Any:
            response = super().send(request, **kwargs)
            return _as_event(request, response.read()) if _lacks_events(request, response, **kwargs) else response

    class AsyncEventClient(openai.DefaultAsyncHttpxClient):
        async def send(self, request: Any, **kwargs: Any) -> Any:
            response = await super().send(request, **kwargs)
            return _as_event(request, await response.aread()) if _lacks_events(request, response, **kwargs) else response

    return EventClient, AsyncEventClient


def _lacks_events(request: Any, response: Any, *, stream: bool = False, **kwargs: Any) -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_whole = response.status_code == 200 and kind == "application/json"
    return is_whole and stream and _asks_for_events(request)


def _as_event(request: Any, body: bytes) -> Any:
    head = {"content-type": "text/event-stream"}
    content = b"data: " + _one_line(body) + b"\n\ndata: [DONE]\n\n"
    return http_library().Response(200, headers=head, content=content, request=request)


def _asks_for_events(request: Any) -> bool:
    try:
        return bool(json.loads(request.content).get("stream"))
    except (ValueError, AttributeError):
        return False


def _one_line(body: bytes) -> bytes:
    try:
        return json.dumps(json.loads(body)).encode()
    except ValueError:
        return body.replace(b"\n", b" ")
