"""The parameters and keys of a LiteLLM ``model_list``: which are read, which are sent, which have no effect here.

Format: https://docs.litellm.ai/docs/proxy/configs
"""

from __future__ import annotations

import re
from types import MappingProxyType

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
PRICES = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost")
READ_ELSEWHERE = frozenset({"base_model", "custom_llm_provider", "extra_body", "mode", "model_info", *PRICES, *LIMITS})
"""Parameters that the loader reads; they are not sent with requests."""
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


def is_option(key: str) -> bool:
    """Return whether a parameter is sent with requests."""
    taken = key in READ_ELSEWHERE or key in NOT_TAKEN or key in FROM_ENVIRONMENT or key in HEADERS
    return not taken and not is_unused_hint(key) and not _COST.search(key)


def is_left_out(key: str) -> bool:
    """Return whether a parameter is ignored with a note."""
    return key in NOT_TAKEN or key in HEADERS or is_unused_hint(key) or (bool(_COST.search(key)) and key not in PRICES)


def is_unused_hint(key: str) -> bool:
    """Return whether a parameter describes the model to LiteLLM: what it supports, how its health is checked."""
    return key.startswith(("supports_", "health_check_", "litellm_"))
