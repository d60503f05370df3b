"""The providers, parameters and keys of a LiteLLM ``model_list``, and what they correspond to here.

Format: https://docs.litellm.ai/docs/proxy/configs
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from vinelm.errors import ConfigError


class Route(NamedTuple):
    """The provider that a prefix of LiteLLM's model strings stands for.

    Args:
        provider: The provider here.
        key_env: The default environment variable of the API key.
        api_base: The URL of the service; None takes the entry's, or that of the variable ``base_env``.
        needs_base: A URL is required.
        base_env: The environment variable of the URL.
        prefix: Put before the model's id.
    """

    provider: str
    key_env: str | None = None
    api_base: str | None = None
    needs_base: bool = False
    base_env: str | None = None
    prefix: str = ""


ROUTES: Mapping[str, Route] = MappingProxyType(
    {
        "anthropic": Route("langchain", "ANTHROPIC_API_KEY", prefix="anthropic:"),
        "azure": Route("azure", "AZURE_API_KEY", needs_base=True, base_env="AZURE_API_BASE"),
        "bedrock": Route("bedrock"),
        "bedrock_converse": Route("bedrock"),
        "deepseek": Route("openai", "DEEPSEEK_API_KEY", "https://api.deepseek.com/v1"),
        "gemini": Route("gemini", "GEMINI_API_KEY"),
        "groq": Route("openai", "GROQ_API_KEY", "https://api.groq.com/openai/v1"),
        "hosted_vllm": Route("openai", needs_base=True),
        "litellm_proxy": Route("openai", needs_base=True),
        "lm_studio": Route("openai", needs_base=True),
        "openai": Route("openai", "OPENAI_API_KEY"),
        "openai_like": Route("openai", needs_base=True),
        "openrouter": Route("openai", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1"),
        "vertex_ai": Route("vertex"),
    }
)
AZURE_V1 = ("v1", "latest", "preview")
"""API versions that select Azure's ``/openai/v1`` endpoint, which has the plain OpenAI protocol."""
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
PRICES = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost")
READ_ELSEWHERE = frozenset({"custom_llm_provider", "model_info", *PRICES, *LIMITS})
"""Parameters that the loader reads; they are not sent with requests."""
NOT_TAKEN = frozenset(
    {
        "additional_drop_params", "allowed_fails", "allowed_fails_policy", "allowed_openai_params", "api_version",
        "budget_duration", "cache", "caching", "configurable_clientside_auth_params", "content_policy_fallbacks",
        "context_window_fallbacks", "cooldown_time", "default_api_key_rpm_limit", "default_api_key_tpm_limit",
        "drop_params", "fallbacks", "hf_model_name", "max_budget", "max_retries", "merge_reasoning_content_in_choices",
        "mock_response", "num_retries", "order", "region_name", "retry_policy", "stream", "stream_timeout", "tags",
        "use_in_pass_through", "use_litellm_proxy", "weight",
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
_COST = re.compile(r"(^|_)cost(_|$)")
_BY_NAME = ((re.compile(r"gpt-|chatgpt-|o\d"), "openai"), (re.compile(r"claude-"), "anthropic"))
_AZURE_SERIES = re.compile(r"^(o_series|gpt5_series)/")


def is_option(key: str) -> bool:
    """Return whether a parameter is sent with requests."""
    return key not in READ_ELSEWHERE and key not in NOT_TAKEN and key not in FROM_ENVIRONMENT and not _COST.search(key)


def is_left_out(key: str) -> bool:
    """Return whether a parameter is ignored with a note."""
    return key in NOT_TAKEN or (bool(_COST.search(key)) and key not in PRICES)


def route_of(model: Any, params: Mapping[str, Any], label: str) -> tuple[str, Route, str]:
    """Split a model string into its prefix, the route of the prefix, and the provider's id of the model.

    Args:
        model: The string, such as ``"openai/gpt-4o"``.
        params: The entry's ``litellm_params``.
        label: What errors name.

    Raises:
        ConfigError: The string is malformed, a wildcard, or of a provider that is not known.
    """
    if not isinstance(model, str) or not model:
        raise ConfigError(f"{label}: litellm_params has no model: write it as PROVIDER/MODEL, such as openai/gpt-4o")
    if "*" in model:
        raise ConfigError(f"{label}: {model!r} stands for many models, and each choice needs a price: list them one by one")
    prefix, model_id = _split(model, params)
    if prefix not in ROUTES or not model_id:
        raise ConfigError(
            f"{label}: unknown LiteLLM provider in {model!r}: known are {', '.join(ROUTES)}; leave the entry out, or write a "
            'TOML one with provider = "langchain"'
        )
    if prefix == "vertex_ai" and not model_id.startswith(("gemini", "publishers/google/")):
        raise ConfigError(
            f"{label}: {model!r}: of Vertex AI only Gemini models are called: leave the entry out, or write a TOML one with "
            'provider = "langchain"'
        )
    route = ROUTES[prefix]
    if prefix == "azure" and params.get("api_version") in AZURE_V1:
        route = route._replace(provider="openai")
    model_id = model_id.removeprefix("converse/") if prefix == "bedrock" else _AZURE_SERIES.sub("", model_id)
    return prefix.removesuffix("_converse"), route, model_id


def _split(model: str, params: Mapping[str, Any]) -> tuple[str, str]:
    named = params.get("custom_llm_provider")
    if isinstance(named, str):
        return named, model.removeprefix(f"{named}/")
    prefix, slash, model_id = model.partition("/")
    if slash:
        return prefix, model_id
    return next((provider for pattern, provider in _BY_NAME if pattern.match(model)), prefix), model
