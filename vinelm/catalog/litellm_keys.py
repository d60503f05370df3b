"""Classifies the parameters and keys of a LiteLLM ``model_list`` as read, sent, renamed or ignored, and finds chat models.

Format: https://docs.litellm.ai/docs/proxy/configs
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

RENAMED = MappingProxyType(
    {
        "aws_region_name": "region",
        "vertex_project": "project",
        "vertex_ai_project": "project",
        "vertex_location": "location",
        "vertex_ai_location": "location",
    }
)
LIMITS = MappingProxyType({"rpm": "requests_per_min", "tpm": "tokens_per_min", "max_parallel_requests": "concurrency"})
PRICES = ("input_cost_per_token", "output_cost_per_token")
"""The rates that make a price."""
READ_ELSEWHERE = frozenset({"base_model", "custom_llm_provider", "extra_body", "mode", "model_info", "tiered_pricing", *LIMITS})
"""Parameters that the loader reads; like rates, they are not sent with requests."""
NOT_TAKEN = frozenset(
    {
        "access_groups", "additional_drop_params", "allowed_fails", "allowed_fails_policy", "allowed_openai_params",
        "api_version", "budget_duration", "cache", "cache_control_injection_points", "caching", "client",
        "configurable_clientside_auth_params", "content_policy_fallbacks", "context_window_fallbacks", "cooldown_time",
        "default_api_key_rpm_limit", "default_api_key_tpm_limit", "description", "drop_params", "fallbacks", "guardrails",
        "hf_model_name", "id", "keep_alive", "litellm_trace_id", "logger_fn", "max_budget", "max_retries",
        "merge_reasoning_content_in_choices", "mock_response", "mock_timeout", "model_alias", "num_ctx", "num_retries", "order",
        "preset_cache_key", "region_name", "retry_policy", "retry_strategy", "rpm_limit", "ssl_verify", "stream",
        "stream_timeout", "tags", "tpm_limit", "use_in_pass_through", "use_litellm_proxy", "verbose", "weight",
    }
)  # fmt: skip
"""Parameters of LiteLLM's own routing, retries and caching, which are ignored with a note."""
FROM_ENVIRONMENT = MappingProxyType(
    {
        "aws_access_key_id": "AWS_ACCESS_KEY_ID",
        "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
        "aws_session_token": "AWS_SESSION_TOKEN",
        "aws_profile_name": "AWS_PROFILE",
        "organization": "OPENAI_ORG_ID",
        "vertex_credentials": "GOOGLE_APPLICATION_CREDENTIALS",
        "vertex_ai_credentials": "GOOGLE_APPLICATION_CREDENTIALS",
    }
)
"""Parameters that the SDK reads from the environment, and the variable of each."""
OTHER_CREDENTIALS = frozenset(
    {
        "azure_ad_token", "tenant_id", "client_id", "client_secret", "azure_username", "azure_password", "azure_scope",
        "aws_role_name", "aws_session_name", "aws_web_identity_token", "aws_sts_endpoint", "litellm_credential_name",
    }
)  # fmt: skip
"""Credentials that no provider here supports."""
HEADERS = ("extra_headers", "headers", "default_headers")
NAMES_OF_THE_CALLER = re.compile(r"(http-)?referer|x-title|user-agent|helicone-.*|x-.*-(trace|session|request)(-id)?", re.I)
"""Headers that tell a service who calls, and do not change the answer."""
_COST = re.compile(r"(^|_)cost(_|$)")
_IS_RATE = re.compile(r"(^|_)cost_per_|(^|_)token_cost(_|$)|^tiered_pricing$")


def is_option(key: str) -> bool:
    """Return whether ``key``, a parameter of an entry, is sent with requests."""
    taken = key in READ_ELSEWHERE or key in NOT_TAKEN or key in FROM_ENVIRONMENT or key in HEADERS
    return not taken and not is_unused_hint(key) and not _COST.search(key)


def is_left_out(key: str) -> bool:
    """Return whether ``key``, a parameter of an entry, is ignored. A note then tells the user."""
    return key in NOT_TAKEN or key in HEADERS or is_unused_hint(key) or (bool(_COST.search(key)) and not is_rate(key))


def is_rate(key: str) -> bool:
    """Return whether ``key``, a parameter of an entry, states a price."""
    return bool(_IS_RATE.search(key))


def is_unused_hint(key: str) -> bool:
    """Return whether ``key``, a parameter of an entry, only describes the model to LiteLLM, such as its features or health
    check.
    """
    return key.startswith(("supports_", "health_check_", "litellm_"))


BUDGETS = {"disable": 0, "none": 0, "minimal": 128, "low": 1024, "medium": 2048, "high": 4096}
"""Thinking tokens that LiteLLM uses for an effort."""
_LEAST_OF_CLAUDE = 1024
_WITH_BUDGET = re.compile(r"claude-3|claude-(opus|sonnet|haiku)-4(-[015])?($|[-@]20\d{6})")
"""Models of Claude that think within a budget; later ones adapt to an effort and refuse a budget."""


def in_words_of(provider: str, model_id: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in OpenAI's form translated to the form of the provider, Gemini or Claude, as LiteLLM does.

    For other models the options are returned unchanged.
    """
    if provider in ("gemini", "vertex"):
        return _gemini(model_id, dict(options))
    if provider == "anthropic" or (provider == "bedrock" and "claude" in model_id):
        return _claude(model_id, dict(options))
    return dict(options)


def _gemini(model_id: str, options: dict[str, Any]) -> dict[str, Any]:
    effort, thinking = options.pop("reasoning_effort", None), options.pop("thinking", None)
    if isinstance(thinking, Mapping):
        budget = thinking.get("budget_tokens", -1) if thinking.get("type") == "enabled" else 0
        options["thinking_config"] = {"thinking_budget": budget}
    elif effort is not None and "gemini-3" in model_id:
        options["thinking_config"] = {"thinking_level": "high" if effort == "high" else "low"}
    elif effort is not None:
        options["thinking_config"] = {"thinking_budget": BUDGETS.get(effort, -1)}
    return options


def _claude(model_id: str, options: dict[str, Any]) -> dict[str, Any]:
    effort = options.pop("reasoning_effort", None)
    budget = BUDGETS.get(effort, 0) if effort is not None and "thinking" not in options else 0
    if budget and _WITH_BUDGET.search(model_id):
        options["thinking"] = {"type": "enabled", "budget_tokens": max(budget, _LEAST_OF_CLAUDE)}
    elif budget:
        options["thinking"] = {"type": "adaptive"}
        options["output_config"] = {"effort": "low" if effort == "minimal" else effort, **options.get("output_config", {})}
    return options


_MODES = {
    "embedding": "embedding", "image_generation": "image", "image_edit": "image", "video_generation": "video",
    "audio_transcription": "audio", "audio_speech": "audio", "realtime": "audio", "rerank": "rerank",
    "moderation": "moderation", "completion": "text completion", "batch": "batch", "ocr": "OCR", "search": "search",
    "vector_store": "search",
}  # fmt: skip
"""LiteLLM's ``mode`` of an entry, and our word for it; ``chat`` and ``responses`` are chat models."""
_NAMES = (
    (re.compile(r"text-completion-|gpt-3\.5-turbo-instruct|davinci-002|babbage-002"), "text completion"),
    (re.compile(r"rerank|ranker"), "rerank"),
    (re.compile(r"embed|(^|[/-])(bge|e5|gte|minilm|all-mpnet|voyage|jina-clip)-"), "embedding"),
    (
        re.compile(r"dall-e|gpt-image|imagen-|stable-diffusion|sdxl|(^|/)flux|-image(-|$)|recraft|nova-canvas"),
        "image",
    ),
    (re.compile(r"(^|[/-])(sora|veo)-|nova-reel"), "video"),
    (re.compile(r"whisper|(^|[/-])tts(-|$)|transcribe|realtime|elevenlabs/|deepgram/|assemblyai/|playai-"), "audio"),
    (re.compile(r"moderation|llama-guard|prompt-guard|shieldgemma"), "moderation"),
)


def other_kind(item: Mapping[str, Any]) -> str | None:
    """Return what an entry is if it is not a chat model, such as ``"embedding"`` or ``"image"``; None for chat models.

    An entry's ``mode`` decides; without one, the name of the model does.
    """
    info, params = item.get("model_info"), item["litellm_params"]
    mode = (info.get("mode") if isinstance(info, Mapping) else None) or params.get("mode")
    if mode in ("chat", "responses"):
        return None
    if isinstance(mode, str):
        return _MODES.get(mode, mode)
    base = info.get("base_model") if isinstance(info, Mapping) else None
    names = (str(name).lower().replace(" ", "-") for name in (params.get("model"), base, item.get("model_name")) if name)
    return next((kind for name in names for pattern, kind in _NAMES if pattern.search(name)), None)
