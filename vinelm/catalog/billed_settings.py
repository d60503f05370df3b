"""Reads the settings of a chat model or call that decide its cost: token limit, number of answers, model, tier.

LangChain's packages pass on unknown settings, and merge whole request bodies (``extra_body``) into theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_tokens_to_sample", "num_predict")
"""The parameter names by which LangChain's packages limit the tokens of an answer."""
_LIMITS = (*LIMITS, "maxTokens", "maxOutputTokens", "max_new_tokens", "max_gen_len")
_ANSWERS = ("n", "best_of", "candidate_count", "candidateCount", "num_return_sequences")
_MODELS = ("model", "model_name", "model_id", "modelId", "deployment_name", "azure_deployment", "models")
_STORED = ("cached_content", "cachedContent", "previous_response_id", "conversation", "prompt")
_SPEAKING = ("modalities", "response_modalities", "responseModalities")
_INSIDE = (
    "extra_body", "model_kwargs", "generation_config", "generationConfig", "inference_config", "inferenceConfig", "options",
    "additional_model_request_fields", "additionalModelRequestFields",
)  # fmt: skip
"""Settings that contain other settings."""
DEARER: Mapping[str, str] = MappingProxyType(
    {
        "service_tier": "priority",
        "serviceTier": "priority",
        "speed": "fast",
        "performance_config": "optimized",
        "performanceConfig": "optimized",
    }
)
"""Settings by which providers serve a call faster at a higher rate."""
_APART = ("web_search_options", "plugins")
"""Settings that make servers search, which is billed separately from tokens: OpenAI's and OpenRouter's."""
_CLIENTS_TOOLS = ("function", "custom", "local_shell", "apply_patch")
"""Types of tools that the client runs. Servers run all other types, and may bill them separately from tokens."""
MOST_COUNT = 2**31 - 1
"""The largest token count that servers accept."""


def held_in(settings: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield each dictionary of further settings, such as ``extra_body``, that is nested in these settings, at any depth."""
    for name in _stated(settings, _INSIDE):
        inside = settings[name]
        if isinstance(inside, Mapping):
            yield inside
            yield from held_in(inside)


def settings_of(chat: Any) -> dict[str, Any]:
    """Return the attributes of a chat model that may change the price of its calls, by name.

    An attribute that contains further settings, such as ``extra_body``, is returned whole.
    """
    return {name: one for name in (*_ANSWERS, *_INSIDE, *_STORED, *_SPEAKING, *DEARER) if (one := getattr(chat, name, None))}


def limit_in(*settings: Mapping[str, Any]) -> int | None:
    """Return the largest limit on an answer's tokens in these settings; None if they set no limit."""
    found = [count for part in settings for name in _stated(part, _LIMITS) if (count := _count(part[name])) is not None]
    return max(found, default=None)


def answers_in(settings: Mapping[str, Any]) -> int:
    """Return the maximum number of answers that a call with these settings, nested ones included, asks for; at least 1."""
    parts = [settings, *held_in(settings)]
    counts = [_count(part[name]) for part in parts for name in _stated(part, _ANSWERS)]
    return max((count for count in counts if count is not None), default=1)


def other_model_in(settings: Mapping[str, Any], *own: Any) -> Any:
    """Return the model that a call's settings name, if it is none of the names in ``own``; else None."""
    for part in (settings, *held_in(settings)):
        for name in _stated(part, _MODELS):
            asked = part[name]
            if asked is not None and asked not in own:
                return asked
    return None


def dearer_in(settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the name and the value of the first setting, such as a service tier, that costs more than the list price; None
    without one.
    """
    for part in (settings, *held_in(settings)):
        for name in _stated(part, DEARER):
            asked, value = part[name], DEARER[name]
            if asked == value or (isinstance(asked, Mapping) and value in asked.values()):
                return name, value
    return None


def billed_apart_in(settings: Mapping[str, Any]) -> str | None:
    """Return what these settings request that is charged in addition to tokens, such as a web search; None if they request no
    such thing.

    The result is the name of the first such setting, or a phrase for a tool that the provider runs.
    """
    for part in (settings, *held_in(settings)):
        for name in _stated(part, _APART):
            if part[name] not in (None, []):  # even an empty object requests it
                return name
        tools = part.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            kind = tool.get("type", "function" if "function" in tool else None) if isinstance(tool, Mapping) else None
            if kind not in _CLIENTS_TOOLS:
                return f"tools of type {kind!r}" if isinstance(kind, str) else "tools"
    return None


def too_many_in(settings: Mapping[str, Any]) -> str | None:
    """Return the name of the first setting that asks for more tokens or answers than any server accepts; None without one."""
    for part in (settings, *held_in(settings)):
        for name in _stated(part, (*_LIMITS, *_ANSWERS)):
            if (_count(part[name]) or 0) > MOST_COUNT:
                return name
    return None


def stored_in(settings: Mapping[str, Any]) -> int:
    """Return the number of settings that refer to prompt parts stored at the provider, whose length is unknown here."""
    parts = [settings, *held_in(settings)]
    return sum(bool(part[name]) for part in parts for name in _stated(part, _STORED))


def speaks_in(settings: Mapping[str, Any]) -> bool:
    """Return whether these settings allow audio answers."""
    parts = [settings, *held_in(settings)]
    return any("audio" in str(part[name] or "").lower() for part in parts for name in _stated(part, _SPEAKING)) or any(
        part.get("audio") for part in parts
    )


def _stated(settings: Mapping[str, Any], names: Iterable[str]) -> Sequence[str]:
    """Return those of ``names`` that the settings contain, in the order of ``names``. Fast if there are none."""
    return () if settings.keys().isdisjoint(names) else [name for name in names if name in settings]


def _count(value: Any) -> int | None:
    """Return a setting's value as a positive integer, as a server would read it; None for other values."""
    if isinstance(value, str | float) and not isinstance(value, bool):
        try:
            value = int(float(value))
        except (ValueError, OverflowError):
            return None
    return value if type(value) is int and value > 0 else None
