"""Build the body of SGLang's native ``/generate`` from LangChain messages, by the chat templates of Hugging Face, in a sandbox.

Wire format: https://docs.sglang.io/basic_usage/sampling_params.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.openai.request import wire_messages
from vinelm.backends.remote.call_options import PARALLEL, asked_of, refuse_ours
from vinelm.backends.remote.transport import AttemptBound, TransportRequest
from vinelm.catalog import Model
from vinelm.errors import UNSUPPORTED_CALL, ConfigError, WorkflowError
from vinelm.io.reading import read_text

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "chatml": (
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
        ),
        "llama3": (
            "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
            "{{ m.content | trim }}<|eot_id|>{% endfor %}"
            "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
        ),
    }
)
"""Built-in templates: chatml is for Qwen and many fine-tunes, llama3 for Llama 3."""


@dataclass(frozen=True)
class ChatTemplate:
    """A compiled template with the special tokens that it may use. The server's tokenizer adds ``bos``."""

    compiled: Any
    tokens: Mapping[str, str]
    bos: str = ""

    def render(self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> str:
        """Render the prompt up to the assistant's turn; :class:`WorkflowError` if the template rejects the messages."""
        try:
            text: str = self.compiled.render(
                **{**self.tokens, "messages": messages, "add_generation_prompt": True, "tools": None, **variables}
            )
        except Exception as error:  # a template may raise anything, and quote the messages
            kind = type(error).__name__
        else:
            return text.removeprefix(self.bos)
        raise WorkflowError(
            f"the model's chat template refuses these messages ({kind}): check the order of their roles", code=UNSUPPORTED_CALL
        )


@cache
def chat_template(source: str) -> ChatTemplate:
    """Load a built-in template, a ``tokenizer_config.json`` or a ``.jinja`` file; :class:`ConfigError` if it is invalid."""
    if source in BUILT_IN:
        return ChatTemplate(_compiled(BUILT_IN[source], source), {"bos_token": "", "eos_token": ""})
    path = Path(source)
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError):
        known = ", ".join(BUILT_IN)
        raise ConfigError(
            f"chat_template {source!r}: neither one of {known} nor a file: give tokenizer_config.json's path"
        ) from None
    if path.suffix != ".json":
        return ChatTemplate(_compiled(text, source), {"bos_token": "", "eos_token": ""})
    return _of_tokenizer(text, source)


def _of_tokenizer(text: str, source: str) -> ChatTemplate:
    try:
        plain = json.loads(text)
        templates = plain.get("chat_template")
    except (ValueError, AttributeError):
        raise ConfigError(f"chat_template {source}: not a tokenizer_config.json") from None
    if isinstance(templates, list):
        templates = next((each["template"] for each in templates if each.get("name") == "default"), None)
    if not isinstance(templates, str):
        raise ConfigError(f"chat_template {source}: has no chat_template: give the model's .jinja file")
    tokens = {key: _token(plain.get(key)) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
    bos = tokens["bos_token"] if plain.get("add_bos_token") is not False else ""
    return ChatTemplate(_compiled(templates, source), tokens, bos)


def _token(value: Any) -> str:
    return str(value.get("content", "") if isinstance(value, Mapping) else value or "")


def _compiled(text: str, source: str) -> Any:
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    world = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    world.filters["tojson"] = _to_json
    world.globals["raise_exception"] = _refuse
    world.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return world.from_string(text)
    except TemplateError as error:
        raise ConfigError(f"chat_template {source}: not a Jinja template: line {getattr(error, 'lineno', '?')}") from None


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise ValueError(message)


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
            f'model {model.name!r}: /generate takes no tools: give the entry provider = "openai" and api_base ".../v1"',
            code=UNSUPPORTED_CALL,
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
                    "a message is not text, and SGLang's native backend sends nothing else: use its /v1 endpoint",
                    code=UNSUPPORTED_CALL,
                )
            content = "".join(part if isinstance(part, str) else part["text"] for part in content)
        found.append({**sent, "content": content})
    return found
