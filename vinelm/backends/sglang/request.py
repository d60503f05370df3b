"""Build the body of SGLang's native ``/generate`` from LangChain messages.

Wire format: https://docs.sglang.io/basic_usage/sampling_params.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.openai.request import wire_messages
from vinelm.backends.remote.call_options import PARALLEL, asked_of, refuse_ours
from vinelm.backends.remote.transport import AttemptBound, TransportRequest
from vinelm.backends.sglang.chat_template import chat_template
from vinelm.catalog import Model
from vinelm.errors import ConfigError, WorkflowError

OWN_OPTIONS = ("chat_template", "chat_template_kwargs", "incremental_stream")
TOP_LEVEL = (
    "priority",
    "lora_path",
    "custom_logit_processor",
    "extra_key",
    "routing_key",
    "data_parallel_rank",
    "session_params",
)
"""Options that are fields of the request; every other option is a sampling parameter."""
OURS = ("text", "input_ids", "stream", "n", "max_new_tokens", "rid", "sampling_params")


def generate_request(
    model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
) -> TransportRequest:
    """Build the body. The prompt is rendered with the entry's ``chat_template``.

    :class:`ConfigError` for an option that the backend sets itself, and for tools, which ``/generate`` does not support.
    :class:`WorkflowError` for a message that is not text.
    """
    asked = asked_of(model, model.options, options, OURS)
    given = asked.rest
    given.pop(PARALLEL, None)  # the API has no such parameter
    if asked.tools:
        raise ConfigError(
            f'model {model.name!r}: /generate takes no tools: give the entry provider = "openai" and api_base ".../v1"'
        )
    check_options(model, given)
    template = chat_template(str(given["chat_template"]))
    text = template.render(_texts(messages), given.get("chat_template_kwargs") or {})
    sampling = {key: value for key, value in given.items() if key not in OWN_OPTIONS and key not in TOP_LEVEL}
    body = {
        "text": text,
        "sampling_params": {**sampling, "max_new_tokens": asked.limit},
        "stream": is_streamed,
        **{key: given[key] for key in TOP_LEVEL if key in given},
    }
    return TransportRequest(body=body, prompt_chars=len(text), is_streamed=is_streamed)


def attempt_bound(body: Mapping[str, Any]) -> AttemptBound:
    """Return the most tokens that one attempt can cost."""
    return AttemptBound.of(body["text"], max_tokens=body["sampling_params"]["max_new_tokens"])


def check_options(model: Model, options: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for an option that the backend sets itself, or an invalid chat template."""
    refuse_ours(model, options, OURS)
    if "chat_template" not in options:
        raise ConfigError(
            f'model {model.name!r}: /generate takes plain text: add options = {{ chat_template = "chatml" }}, or the path '
            "of the model's tokenizer_config.json"
        )


def _texts(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Convert messages to the input of a template: role, text and tool calls."""
    found = []
    for sent in wire_messages(messages):
        content = sent.get("content") or ""
        if isinstance(content, list):
            if any(not isinstance(part, str) and part.get("type") != "text" for part in content):
                raise WorkflowError(
                    "a message is not text, and SGLang's native backend sends nothing else: use its /v1 endpoint"
                )
            content = "".join(part if isinstance(part, str) else part["text"] for part in content)
        found.append({**sent, "content": content})
    return found
