"""Build a Gemini ``generateContent`` request from LangChain messages and the thought signatures of earlier responses.

Wire format: https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage, convert_to_openai_messages
from langchain_core.utils.function_calling import convert_to_openai_tool

from vinelm.backends.gemini.thought_signatures import ModelSignatures, Signatures
from vinelm.backends.remote.attempt_bound import AttemptBound
from vinelm.backends.remote.call_options import asked_of, refuse_ours
from vinelm.backends.remote.transport import TransportRequest
from vinelm.backends.turns import joined_turns
from vinelm.catalog import Model
from vinelm.errors import ConfigError, WorkflowError

OURS = (
    "contents", "system_instruction", "candidate_count", "max_output_tokens", "max_tokens", "http_options",
    "automatic_function_calling", "tool_config",
)  # fmt: skip
"""Parameters that the backend sets; not allowed as options. The maximum output length is the entry's ``max_tokens``."""
VERTEX_OPTIONS = ("project", "location")
"""Options of a Vertex model that select its project and location."""


def content_request(
    model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], signatures: Signatures, *, is_streamed: bool
) -> TransportRequest:
    """Build ``contents`` and ``config`` of ``generate_content``. Options go into the config under the SDK's names.

    :class:`ConfigError` for an option that the backend sets itself, :class:`WorkflowError` for a message that the format
    cannot represent.
    """
    asked = asked_of(model, config_options(model), options, OURS)
    given = asked.rest
    stop = given.pop("stop", None)
    config: dict[str, Any] = {**given, "max_output_tokens": asked.limit, "automatic_function_calling": {"disable": True}}
    if stop:
        config["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if system := [message.text for message in messages if isinstance(message, SystemMessage) and message.text]:
        config["system_instruction"] = "\n\n".join(map(str, system))
    if asked.tools:
        config |= _tools(model, asked.tools, asked.choice)
    body = {"contents": _conversation(messages, signatures.of(model.model_id)), "config": config}
    return TransportRequest(body=body, prompt_chars=len(_prompt_text(body)), is_streamed=is_streamed)


def attempt_bound(body: Mapping[str, Any]) -> AttemptBound:
    """Return the most tokens that one attempt can cost."""
    prompt = _prompt_text(body)
    return AttemptBound.of(
        prompt_bytes=len(prompt.encode("utf-8", "surrogatepass")),
        max_tokens=body["config"]["max_output_tokens"],
    )


def config_options(model: Model) -> dict[str, Any]:
    """Return the entry's options that belong to the SDK's ``GenerateContentConfig``."""
    own = VERTEX_OPTIONS if model.provider == "vertex" else ()
    return {key: value for key, value in model.options.items() if key not in own}


def check_options(model: Model, options: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for an option that the backend sets itself."""
    refuse_ours(model, options, OURS)


def _conversation(messages: Sequence[BaseMessage], signatures: ModelSignatures) -> list[dict[str, Any]]:
    """Convert messages to user and model turns; joins turns of the same role, as results of parallel calls require."""
    names = {call["id"]: call["name"] for message in messages if isinstance(message, AIMessage) for call in _all_calls(message)}
    with suppress(ValueError, KeyError, TypeError, AttributeError):  # their message contains the chat message
        return joined_turns(messages, lambda message: _parts(message, names, signatures), model_role="model", key="parts")
    raise WorkflowError("a message has content that Gemini's API cannot represent: send text or images as base64 data")


def _parts(message: BaseMessage, names: Mapping[Any, Any], signatures: ModelSignatures) -> Iterator[dict[str, Any]]:
    if isinstance(message, ToolMessage):
        name = message.name or names[message.tool_call_id]
        key = "error" if message.status == "error" else "output"
        yield {"function_response": {"name": name, "response": {key: str(message.text)}}}
        return
    yield from _content(message)
    if isinstance(message, AIMessage):
        for call in _all_calls(message):
            signature = signatures.known(call["id"])
            signed = {} if signature is None else {"thought_signature": signature}
            yield {"function_call": {"name": call["name"], "args": call["args"]}, **signed}


def _all_calls(message: AIMessage) -> Iterator[dict[str, Any]]:
    for call in message.tool_calls:
        yield {"id": call["id"], "name": call["name"], "args": call["args"]}
    for broken in message.invalid_tool_calls:
        yield {"id": broken["id"], "name": broken["name"], "args": {"invalid_json": broken["args"]}}


def _content(message: BaseMessage) -> Iterator[dict[str, Any]]:
    """Convert text and images, by way of the OpenAI format, into which LangChain translates the others."""
    if isinstance(message.content, str):
        if message.content:
            yield {"text": message.content}
        return
    parts = [part for part in message.content if isinstance(part, str) or part.get("type") not in _NOT_SENT]
    plain = message.model_copy(update={"content": parts, **({"tool_calls": []} if isinstance(message, AIMessage) else {})})
    for converted in convert_to_openai_messages([plain], text_format="block"):
        for part in converted["content"]:
            yield {"text": part["text"]} if part["type"] == "text" else _image(part["image_url"]["url"])


def _image(url: str) -> dict[str, Any]:
    head, _, data = url.partition(";base64,")
    kind = head.removeprefix("data:")
    if not kind.startswith("image/") or not data:
        raise ValueError("not an image as base64 data")
    try:
        return {"inline_data": {"mime_type": kind, "data": base64.b64decode(data, validate=True)}}
    except binascii.Error:
        raise ValueError("not base64") from None


def _tools(model: Model, tools: Sequence[Any], choice: Any) -> dict[str, Any]:
    functions = [convert_to_openai_tool(tool)["function"] for tool in tools]
    declared = [
        {
            "name": function["name"],
            "description": function.get("description") or "",
            "parameters_json_schema": function.get("parameters") or {"type": "object", "properties": {}},
        }
        for function in functions
    ]
    config: dict[str, Any] = {"tools": [{"function_declarations": declared}]}
    names = [function["name"] for function in functions]
    if choice in ("any", "required", True):
        config["tool_config"] = {"function_calling_config": {"mode": "ANY"}}
    elif choice in names:
        config["tool_config"] = {"function_calling_config": {"mode": "ANY", "allowed_function_names": [choice]}}
    elif choice not in (None, "auto"):
        raise ConfigError(f"model {model.name!r}: tool_choice must be auto, any, none or the name of a tool")
    return config


def _prompt_text(body: Mapping[str, Any]) -> str:
    config = {key: body["config"][key] for key in ("system_instruction", "tools", "response_schema") if key in body["config"]}
    return json.dumps([body["contents"], config], ensure_ascii=False, default=_as_text)


def _as_text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


_NOT_SENT = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content", "tool_use", "function_call"})
