"""Build a Bedrock Converse request from LangChain messages.

Wire format: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage, ToolMessage

from vinelm.backends.remote.call_options import PARALLEL, asked_of, functions_of, refuse_ours, tool_use_of
from vinelm.backends.remote.transport import AttemptBound, TransportRequest
from vinelm.backends.turns import inline_image, joined_turns, made_calls, plain_parts
from vinelm.catalog import Model
from vinelm.errors import UNSUPPORTED_CALL, WorkflowError

OWN_OPTIONS = ("region",)
INFERENCE = {"temperature": "temperature", "top_p": "topP", "topP": "topP", "stop": "stopSequences"}
TOP_LEVEL = ("guardrailConfig", "performanceConfig", "serviceTier", "requestMetadata", "additionalModelRequestFields")
OURS = ("modelId", "messages", "system", "inferenceConfig", "toolConfig", "maxTokens", "max_tokens")


def converse_request(
    model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
) -> TransportRequest:
    """Build the arguments of ``converse``. Options unknown to Converse go to the model (additionalModelRequestFields).

    :class:`ConfigError` for an option that the backend sets itself, :class:`WorkflowError` for a message that the format
    cannot represent.
    """
    asked = asked_of(model, model.options, options, OURS)
    given = asked.rest
    given.pop(PARALLEL, None)  # the API has no such parameter
    body: dict[str, Any] = {"messages": _conversation(messages), "inferenceConfig": {"maxTokens": asked.limit}}
    if system := [{"text": message.text} for message in messages if isinstance(message, SystemMessage) and message.text]:
        body["system"] = system
    if asked.tools:
        body["toolConfig"] = _tool_config(model, asked.tools, asked.choice)
    _place(body, given)
    return TransportRequest(body=body, prompt_chars=len(_prompt_text(body)), is_streamed=is_streamed)


def attempt_bound(body: Mapping[str, Any]) -> AttemptBound:
    """Return the most tokens that one attempt can cost."""
    prompt = _prompt_text(body)
    return AttemptBound.of(
        prompt,
        max_tokens=body["inferenceConfig"]["maxTokens"],
        links=prompt.count("s3Location"),
        writes_cache="cachePoint" in prompt,
    )


def check_options(model: Model, options: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for an option that the backend sets itself."""
    refuse_ours(model, options, OURS)


def _place(body: dict[str, Any], options: Mapping[str, Any]) -> None:
    extra: dict[str, Any] = {}
    for key, value in options.items():
        if key in INFERENCE:
            body["inferenceConfig"][INFERENCE[key]] = [value] if key == "stop" and isinstance(value, str) else value
        elif key in TOP_LEVEL:
            body[key] = value
        elif key not in OWN_OPTIONS:
            extra[key] = value
    if extra:
        body["additionalModelRequestFields"] = {**body.get("additionalModelRequestFields", {}), **extra}


def _conversation(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Convert messages to alternating user and assistant turns, as Converse requires; joins turns of the same role."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):  # their message contains the chat message
        return joined_turns(messages, _blocks)
    raise WorkflowError(
        "a message has content that Bedrock's Converse cannot represent: send text or images as base64 data",
        code=UNSUPPORTED_CALL,
    )


def _blocks(message: BaseMessage) -> Iterator[dict[str, Any]]:
    if isinstance(message, ToolMessage):
        result: dict[str, Any] = {"toolUseId": message.tool_call_id, "content": list(_parts(message)) or [{"text": "(empty)"}]}
        if message.status == "error":
            result["status"] = "error"
        yield {"toolResult": result}
        return
    yield from _parts(message)
    for call in made_calls(message):
        yield {"toolUse": {"toolUseId": call.id, "name": call.name, "input": call.arguments}}


def _parts(message: BaseMessage) -> Iterator[dict[str, Any]]:
    for part in plain_parts(message):
        if part["type"] != "text":
            image_format, data = inline_image(part)
            yield {"image": {"format": image_format, "source": {"bytes": data}}}
        elif part["text"].strip():  # Converse rejects blank texts
            yield {"text": part["text"]}


def _tool_config(model: Model, tools: Sequence[Any], choice: Any) -> dict[str, Any]:
    functions = functions_of(tools)
    specs = [
        {
            "name": function["name"],
            **({"description": function["description"]} if function["description"] else {}),
            "inputSchema": {"json": function["parameters"]},
        }
        for function in functions
    ]
    config: dict[str, Any] = {"tools": [{"toolSpec": spec} for spec in specs]}
    chosen = tool_use_of(model, choice, functions)
    if chosen.mode != "auto":
        config["toolChoice"] = {"any": {}} if chosen.mode == "any" else {"tool": {"name": chosen.name}}
    return config


def _prompt_text(body: Mapping[str, Any]) -> str:
    prompt = {key: body[key] for key in ("messages", "system", "toolConfig", "additionalModelRequestFields") if key in body}
    return json.dumps(prompt, ensure_ascii=False, default=lambda data: base64.b64encode(data).decode())
