"""Build a Gemini ``generateContent`` request from LangChain messages and the thought signatures of earlier responses.

Wire format: https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage, ToolMessage

from vinelm.backends.remote.call_options import PARALLEL, asked_of, functions_of, refuse_ours, tool_use_of
from vinelm.backends.remote.transport import AttemptBound, TransportRequest
from vinelm.backends.turns import CallMemory, inline_image, joined_turns, made_calls, plain_parts
from vinelm.catalog import Model
from vinelm.errors import UNSUPPORTED_CALL, WorkflowError

OURS = (
    "contents", "system_instruction", "candidate_count", "max_output_tokens", "max_tokens", "http_options",
    "automatic_function_calling", "tool_config",
)  # fmt: skip
"""Parameters that the backend sets; not allowed as options. The maximum output length is the entry's ``max_tokens``."""
VERTEX_OPTIONS = ("project", "location")
"""Options of a Vertex model that select its project and location."""
UNSIGNED = ("gemini-1", "gemini-2", "gemma")
"""Prefixes of the names of models without signatures."""
NO_SIGNATURE = base64.urlsafe_b64decode("skip_thought_signature_validator")
"""The placeholder for a call of another model: https://ai.google.dev/gemini-api/docs/thought-signatures"""


@dataclass(frozen=True, slots=True)
class ModelSignatures:
    """The thought signatures of one model's tool calls: it requires them back, but LangChain's tool calls cannot carry them."""

    signatures: CallMemory[bytes | None]
    model_id: str

    def remember(self, call_id: str, signature: bytes | None) -> None:
        """Store the signature of a call. Of parallel calls, the model signs only the first."""
        self.signatures.put(self.model_id, call_id, signature)

    def known(self, call_id: str) -> bytes | None:
        """Return the signature to send with the call; None if the model uses none."""
        return None if self.model_id.startswith(UNSIGNED) else self.signatures.get(self.model_id, call_id, NO_SIGNATURE)


def content_request(
    model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], signatures: ModelSignatures, *, is_streamed: bool
) -> TransportRequest:
    """Build ``contents`` and ``config`` of ``generate_content``. Options go into the config under the SDK's names.

    :class:`ConfigError` for an option that the backend sets itself, :class:`WorkflowError` for a message that the format
    cannot represent.
    """
    asked = asked_of(model, config_options(model), options, OURS)
    given = asked.rest
    given.pop(PARALLEL, None)  # the API has no such parameter
    stop = given.pop("stop", None)
    config: dict[str, Any] = {**given, "max_output_tokens": asked.limit, "automatic_function_calling": {"disable": True}}
    if stop:
        config["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if system := [message.text for message in messages if isinstance(message, SystemMessage) and message.text]:
        config["system_instruction"] = "\n\n".join(map(str, system))
    if asked.tools:
        config |= _tools(model, asked.tools, asked.choice)
    body = {"contents": _conversation(messages, signatures), "config": config}
    return TransportRequest(body=body, prompt_chars=len(_prompt_text(body)), is_streamed=is_streamed)


def attempt_bound(body: Mapping[str, Any]) -> AttemptBound:
    """Return the most tokens that one attempt can cost."""
    prompt = _prompt_text(body)
    return AttemptBound.of(
        prompt,
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
    names = {call.id: call.name for message in messages for call in made_calls(message)}
    with suppress(ValueError, KeyError, TypeError, AttributeError):  # their message contains the chat message
        return joined_turns(messages, lambda message: _parts(message, names, signatures), model_role="model", key="parts")
    raise WorkflowError(
        "a message has content that Gemini's API cannot represent: send text or images as base64 data", code=UNSUPPORTED_CALL
    )


def _parts(message: BaseMessage, names: Mapping[Any, Any], signatures: ModelSignatures) -> Iterator[dict[str, Any]]:
    if isinstance(message, ToolMessage):
        name = message.name or names[message.tool_call_id]
        key = "error" if message.status == "error" else "output"
        yield {"function_response": {"name": name, "response": {key: str(message.text)}}}
        return
    for part in plain_parts(message):
        if part["type"] == "text":
            yield {"text": part["text"]}
        else:
            image_format, data = inline_image(part)
            yield {"inline_data": {"mime_type": f"image/{image_format}", "data": data}}
    for call in made_calls(message):
        signature = signatures.known(str(call.id))
        signed = {} if signature is None else {"thought_signature": signature}
        yield {"function_call": {"name": call.name, "args": call.arguments}, **signed}


def _tools(model: Model, tools: Sequence[Any], choice: Any) -> dict[str, Any]:
    functions = functions_of(tools)
    declared = [
        {"name": f["name"], "description": f["description"], "parameters_json_schema": f["parameters"]} for f in functions
    ]
    config: dict[str, Any] = {"tools": [{"function_declarations": declared}]}
    chosen = tool_use_of(model, choice, functions)
    if chosen.mode != "auto":
        allowed = {"allowed_function_names": [chosen.name]} if chosen.mode == "tool" else {}
        config["tool_config"] = {"function_calling_config": {"mode": "ANY", **allowed}}
    return config


def _prompt_text(body: Mapping[str, Any]) -> str:
    config = {key: body["config"][key] for key in ("system_instruction", "tools", "response_schema") if key in body["config"]}
    return json.dumps([body["contents"], config], ensure_ascii=False, default=_as_text)


def _as_text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
