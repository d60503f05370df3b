"""Converts prompts, answers, tools, settings and usage from any known form to the form of OpenAI's chat completions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from vinelm.io.fields import json_in
from vinelm.replay.formats.values import count, first, mapping, number, text

ROLES = {
    "human": "user",
    "humanmessage": "user",
    "humanmessagechunk": "user",
    "ai": "assistant",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "model": "assistant",  # Gemini
    "systemmessage": "system",
    "toolmessage": "tool",
    "function": "tool",
    "functionmessage": "tool",
    "message": "user",  # the type of an item of OpenAI's Responses, whose role was left out
    "chatmessage": "user",
}
SETTINGS = (
    "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "max_output_tokens", "stop", "stop_sequences",
    "seed", "n", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs", "reasoning_effort",
    "reasoning", "thinking", "verbosity", "tool_choice", "parallel_tool_calls", "service_tier", "modalities",
)  # fmt: skip
"""The parameters of a call that are kept, because they change answers or prices. Others may hold secrets."""
_GENERIC = re.compile(
    r"(Azure)?Chat[A-Z]\w*|(Async)?(Azure)?(OpenAI|Anthropic)\w*|RunnableSequence"  # classes of LangChain and of SDKs
    r"|(?i:((openai|anthropic|bedrock|gemini|litellm|llm)[-_. ])?"
    r"(a?chat|generation|call|a?(text_)?completions?|responses?|messages?)"
    r"([. ](completions?|create))*|llm|call[-_]?llm|(chat|responses)\.\w+\.create|generate_content)"
    r"|ai\.(generate|stream)(Text|Object)(\.do(Generate|Stream))?"  # the AI SDK of Vercel
)
"""Names that libraries give to every call: they say nothing about the step."""
_OPERATION = re.compile(r"(chat|generate_content|text_completion)\s")


def step_name(chosen: Any, *names: Any) -> str:
    """Return a name for the step that made a call, at most 200 characters long; "" if there is none.

    It is ``chosen``, which the application has set, if that is not empty. Otherwise it is the first of ``names`` that is not
    empty, unless a library gives that name to each of its calls.
    """
    found = text(chosen) or next((one for one in map(text, names) if one and not is_generic(one)), "")
    return found[:200]


def is_generic(name: str) -> bool:
    """Return whether libraries give this name to all their calls, as they do with names of classes or with ``chat gpt-4``."""
    return bool(_GENERIC.fullmatch(name) or _OPERATION.match(name))


def messages_of(value: Any) -> list[dict[str, Any]]:
    """Return the messages of a prompt, which may be a text, a list, or an object with one of the usual keys."""
    value = json_in(value)
    if value is None or value in ("", []):
        return []
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if isinstance(value, list):
        if isinstance(value[0], list):  # a batch of a single prompt, as LangChain traces it
            return messages_of(value[0])
        return [message for one in value for message in _messages(one)]
    if not isinstance(value, Mapping):
        return [{"role": "user", "content": str(value)}]
    for name in ("messages", "contents", "prompts", "prompt", "input"):
        if value.get(name):
            system = first(value.get("system"), value.get("instructions"), value.get("system_instruction"))
            above = messages_of(system if isinstance(system, str) else None) or _as_system(system)
            return [*({**one, "role": "system"} for one in above), *messages_of(value[name])]
    if {"role", "type", "kwargs", "parts"} & value.keys():
        return list(_messages(value))
    return [{"role": "user", "content": _json(value)}]


def _as_system(value: Any) -> list[dict[str, Any]]:
    """Return a system prompt as a list of messages. Anthropic, Gemini and OpenTelemetry give it as blocks."""
    if isinstance(value, list):
        value = {"role": "system", "content": value}
    return list(_messages(value)) if isinstance(value, Mapping) else []


def answer_of(value: Any) -> dict[str, Any] | None:
    """Return the assistant's message in ``value``, an answer in any known form; None if it has none."""
    value = json_in(value)
    while True:
        if isinstance(value, list):
            if value and isinstance(value[0], Mapping) and value[0].get("type") in ("reasoning", "function_call", "message"):
                value = {"role": "assistant", "content": value}  # the items of OpenAI's Responses
                break
            if not value:
                return None
            spoken = [one for one in value if not isinstance(one, Mapping) or _role(one, "assistant") == "assistant"]
            value = (
                value[0] if len(spoken) == len(value) else value[-1]
            )  # the first of several choices, or the last of a dialogue
            continue
        if not isinstance(value, Mapping) or "role" in value:
            break
        inner = next(
            (value[name] for name in ("choices", "generations", "message", "messages", "output") if value.get(name)), None
        )
        if inner is None:
            break
        value = json_in(inner)
    if value is None or value == "":
        return None
    if isinstance(value, Mapping) and not {"content", "tool_calls", "kwargs", "parts", "function_call", "data"} & value.keys():
        value = value["text"] if isinstance(value.get("text"), str) else _json(value)
    found = next(_messages(value, "assistant"))
    content = found.get("content")
    if isinstance(content, list):
        content = "".join(str(one.get("text", "")) for one in content if isinstance(one, Mapping))
    calls = {"tool_calls": found["tool_calls"]} if found.get("tool_calls") else {}
    return {"role": "assistant", "content": content, **calls} if content is not None or calls else None


def _messages(value: Any, role: str = "user") -> Iterator[dict[str, Any]]:
    """Yield a message in OpenAI's form; several if one message of Anthropic contains tool results.

    ``role`` is the role of messages that state none.
    """
    if not isinstance(value, Mapping):
        yield {"role": role, "content": value if isinstance(value, str) else _json(value)}
        return
    kind = _role(value, role)
    if isinstance(
        value.get("kwargs"), Mapping
    ):  # a LangChain object: {"lc": 1, "type": "constructor", "id": [..., "AIMessage"]}
        value = value["kwargs"]
    elif isinstance(value.get("data"), Mapping):
        value = value["data"]
    if kind in ("function_call", "function_call_output"):  # items of OpenAI's Responses
        is_call = kind == "function_call"
        result = {"role": "tool", "content": _as_text(value.get("output")), "tool_call_id": text(value.get("call_id"))}
        yield {"role": "assistant", "content": None, "tool_calls": [_call(value)]} if is_call else result
        return
    is_given, calls = _calls(value)
    content = first(value.get("parts"), value.get("content"))
    kept: list[dict[str, Any]] = []
    for block in content if isinstance(content, list) else [content]:
        if (found := _block(block)) is None:
            continue
        if found.get("role") == "tool":
            yield found
        elif found.get("type") != "function":
            kept.append(found)
        elif not is_given:  # LangChain keeps Anthropic's blocks beside its own list of calls
            calls.append(found)
    if not (kept or calls or kind == "assistant" or not isinstance(content, list)):
        return
    is_text = len(kept) == 1 and kept[0].get("type") == "text"
    said = kept[0]["text"] if is_text else kept or (None if calls else "")
    more = {"tool_calls": calls, "tool_call_id": text(value.get("tool_call_id"))}
    yield {"role": kind, "content": said, **{name: one for name, one in more.items() if one}}


def _calls(message: Mapping[str, Any]) -> tuple[bool, list[dict[str, Any]]]:
    """Return (whether a message has a list of tool calls, its tool calls); OpenAI's older ``function_call`` counts as a
    tool call.
    """
    more = mapping(message.get("additional_kwargs"))
    given = first(message.get("tool_calls"), more.get("tool_calls"))
    calls = [_call(one) for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
    legacy = first(message.get("function_call"), more.get("function_call"))
    return given is not None, [_call(legacy)] if isinstance(legacy, Mapping) and not calls else calls


def _block(block: Any) -> dict[str, Any] | None:
    """Convert one part of a message to OpenAI's form; None for reasoning, which is left out.

    The result is a text, other content, a tool call, or a message with a tool's result.
    """
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if not isinstance(block, Mapping):
        return None
    kind = block.get("type") or ("text" if "text" in block else "")
    said = first(block.get("text"), block.get("content"))
    if kind in ("text", "input_text", "output_text", "refusal", "message"):
        return {"type": "text", "text": "" if said is None else _as_text(said)}
    if kind in ("tool_use", "tool_call", "function_call"):
        return _call(block)
    if kind in ("tool_result", "tool_call_response"):
        result = first(block.get("content"), block.get("response"), block.get("result"))
        name = text(first(block.get("tool_use_id"), block.get("id")))
        return {"role": "tool", "content": _as_text(result), "tool_call_id": name}
    return None if kind in ("reasoning", "thinking", "redacted_thinking") else dict(block)


def _role(value: Mapping[str, Any], otherwise: str) -> str:
    """Return the role of a message in OpenAI's terms, or ``otherwise`` if the message states none.

    The role of a LangChain object follows from its class.
    """
    names, inner = value.get("id"), value.get("kwargs")
    kind = first(value.get("role"), value.get("type"), otherwise)
    if isinstance(inner, Mapping):
        kind = first(inner.get("type"), names[-1] if isinstance(names, list) and names else None, otherwise)
    return ROLES.get(str(kind).lower(), str(kind).lower())


def _call(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool call of OpenAI, LangChain, Anthropic or OpenTelemetry in OpenAI's form."""
    inner = mapping(value.get("function")) or value
    arguments = first(inner.get("arguments"), value.get("args"), value.get("input"))
    written = arguments if isinstance(arguments, str) else _json({} if arguments is None else arguments)
    return {
        "id": text(first(value.get("call_id"), value.get("id"))),
        "type": "function",
        "function": {"name": text(inner.get("name")), "arguments": written},
    }


def tools_of(value: Any) -> list[dict[str, Any]]:
    """Return tool declarations of OpenAI, Anthropic or OpenTelemetry in OpenAI's form; others stay as they are."""
    value = json_in(value)
    if isinstance(value, Mapping):  # Langfuse: name to schema
        value = [
            one if isinstance(one := json_in(schema), Mapping) and "name" in one else {"name": name, "parameters": one}
            for name, schema in value.items()
        ]
    found = []
    for one in map(mapping, value if isinstance(value, list) else ()):
        inner = mapping(one.get("function")) or one
        if name := text(inner.get("name")):
            about = {"description": inner["description"]} if inner.get("description") else {}
            schema = mapping(first(inner.get("parameters"), inner.get("input_schema")))
            found.append({"type": "function", "function": {"name": name, **about, "parameters": dict(schema)}})
        elif one:
            found.append(dict(one))
    return found


def settings_of(value: Any) -> dict[str, Any]:
    """Return the recorded parameters of a call (:data:`SETTINGS`); numbers given as text become numbers."""
    given = mapping(value)
    found = {name: given[name] for name in SETTINGS if given.get(name) not in (None, "")}
    for name, one in found.items():
        if isinstance(one, str) and (figure := number(one)) is not None:
            found[name] = int(figure) if figure.is_integer() and "." not in one else figure
    return found


def format_of(value: Any) -> dict[str, Any] | None:
    """Return the requested ``response_format`` of a call, given its parameters; None if plain text was requested.

    The parameters may be those of OpenAI's Responses API.
    """
    given = mapping(value)
    found = mapping(first(given.get("response_format"), mapping(given.get("text")).get("format")))
    return dict(found) if found and found.get("type") != "text" else None


class CallTokens(NamedTuple):
    """Numbers of tokens of a call: prompt, answer, and the cached part of the prompt; None if not recorded."""

    tokens_in: int | None = None
    tokens_out: int | None = None
    cached: int | None = None


def usage_of(value: Any) -> CallTokens:
    """Return the numbers of tokens in a usage object of OpenAI, Anthropic, LangChain or Gemini."""
    of = mapping(value)
    given = first(of.get("prompt_tokens"), of.get("input_tokens"), of.get("promptTokenCount"), of.get("prompt_token_count"))
    tokens_in = count(given)
    tokens_out = count(
        first(*(of.get(k) for k in ("completion_tokens", "output_tokens", "candidatesTokenCount", "candidates_token_count")))
    )
    details = [mapping(of.get(k)) for k in ("prompt_tokens_details", "input_tokens_details", "input_token_details")]
    cached = count(
        first(*(one.get(k) for one in details for k in ("cached_tokens", "cache_read")), of.get("cache_read_input_tokens"))
    )
    if tokens_in is not None and "prompt_tokens" not in of and "input_token_details" not in of:
        # Anthropic counts tokens read from and written to its cache separately from the other tokens of the prompt.
        tokens_in += (count(of.get("cache_read_input_tokens")) or 0) + (count(of.get("cache_creation_input_tokens")) or 0)
    return CallTokens(tokens_in, tokens_out, cached)


def _as_text(value: Any) -> str:
    """Convert a tool's result to text."""
    if isinstance(value, list) and all(isinstance(one, Mapping) and isinstance(one.get("text"), str) for one in value):
        return "".join(one["text"] for one in value)
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
