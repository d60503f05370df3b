"""Maps the providers of LiteLLM's model strings to VineLM's providers.

Base URLs and variables: https://docs.litellm.ai/docs/providers
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from vinelm.errors import ConfigError


class Route(NamedTuple):
    """The provider that a prefix of LiteLLM's model strings stands for, and how to reach it.

    Args:
        provider: VineLM's name of the provider.
        key_envs: The default environment variables of the API key; the first variable that is set is used.
        api_base: The URL of the service; None takes the entry's URL, or the value of the variable ``base_env``.
        needs_base: Whether a URL is required.
        base_env: The environment variable of the URL.
        prefix: Text to put before the model's id.
        is_own_server: Whether the server is self-hosted, so that calls are free of charge.
        path: The path to append to a URL that does not end with this path.
    """

    provider: str
    key_envs: tuple[str, ...] = ()
    api_base: str | None = None
    needs_base: bool = False
    base_env: str | None = None
    prefix: str = ""
    is_own_server: bool = False
    path: str = ""

    @property
    def key_env(self) -> str | None:
        """The default environment variable of the key."""
        return next((name for name in self.key_envs if os.environ.get(name)), self.key_envs[0] if self.key_envs else None)


def _routes() -> Iterator[tuple[str, Route]]:
    text = (Path(__file__).parent / "litellm_providers.toml").read_text(encoding="utf-8")
    for prefix, row in tomllib.loads(text).items():
        yield prefix, Route(**{"provider": "openai", **row, "key_envs": tuple(row.get("key_envs", ()))})


ROUTES: Mapping[str, Route] = MappingProxyType(dict(_routes()))
AZURE_V1 = ("v1", "latest", "preview")
"""API versions that select Azure's ``/openai/v1`` endpoint, which has the plain OpenAI protocol."""
CLAUDE_ON_VERTEX = Route("langchain", prefix="google_anthropic_vertex:")
"""LangChain's package for Claude on Vertex AI."""
_BY_NAME = (
    (re.compile(r"gpt-|chatgpt-|o\d"), "openai"),
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"gemini-"), "vertex_ai"),  # as LiteLLM reads it
    (re.compile(r"command-"), "cohere"),
)
_AZURE_SERIES = re.compile(r"^(o_series|gpt5_series|responses)/")
_BEDROCK_WAYS = re.compile(r"^(converse_like|converse|invoke)/")
_LOCAL_HOST = re.compile(r"localhost|[^.]+|.*\.(local|localhost|internal|lan|home|svc|cluster\.local)", re.I)
_AWS_REGION = re.compile(r"^([a-z]{2}(?:-[a-z]+)+-\d)/")


class Called(NamedTuple):
    """The parts of a LiteLLM model string: its prefix, the route of that prefix, the provider's id of the model, and the AWS
    region.
    """

    prefix: str
    route: Route
    model_id: str
    region: str | None = None


def is_private(url: str) -> bool:
    """Return whether the address is private: a loopback or private IP address, or a host without a domain."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:
        return bool(_LOCAL_HOST.fullmatch(host))


def route_of(model: Any, params: Mapping[str, Any], label: str) -> Called:
    """Return the parts of a LiteLLM model string, with the provider that its prefix stands for.

    Args:
        model: The string, such as ``"openai/gpt-4o"``.
        params: The entry's ``litellm_params``.
        label: The entry's name in error messages.

    Raises:
        ConfigError: The string is malformed, a wildcard, or of a provider that is not known.
    """
    if not isinstance(model, str) or not model:
        raise ConfigError(f"{label}: litellm_params has no model: write it as PROVIDER/MODEL, such as openai/gpt-4o")
    if "*" in model:
        raise ConfigError(f"{label}: {model!r} stands for many models, and each choice needs a price: list them one by one")
    prefix, model_id = split_model(model, params)
    if prefix not in ROUTES or not model_id:
        raise ConfigError(
            f"{label}: unknown LiteLLM provider in {model!r}: leave the entry out, or write a TOML one with "
            'provider = "openai" and an api_base, or provider = "langchain"'
        )
    return _called(prefix, model_id, params, f"{label}: {model!r}")


def _called(prefix: str, model_id: str, params: Mapping[str, Any], label: str) -> Called:
    route, region = ROUTES[prefix], None
    if prefix.startswith("vertex_ai"):
        route, prefix = _on_vertex(model_id, label), "vertex_ai"
    elif prefix == "azure":
        model_id = _AZURE_SERIES.sub("", model_id)
        route = route._replace(provider="openai") if params.get("api_version") in AZURE_V1 else route
    elif prefix == "azure_ai" and model_id.startswith("claude-"):
        route = route._replace(provider="anthropic", path="/anthropic")
    elif prefix.startswith("bedrock"):
        model_id, prefix = _BEDROCK_WAYS.sub("", model_id), "bedrock"
        if (found := _AWS_REGION.match(model_id)) is not None:
            region, model_id = found[1], model_id[found.end() :]
    elif prefix == "openai":
        model_id = model_id.removeprefix("responses/").removeprefix("chat/completions/")
    elif prefix == "fireworks_ai" and "/" not in model_id:
        model_id = f"accounts/fireworks/models/{model_id}"
    elif prefix == "huggingface" and model_id.count("/") == 2:
        seller, _, hub = model_id.partition("/")
        model_id = f"{hub}:{seller}"  # how Hugging Face's router selects a provider
    return Called(prefix, route, model_id, region)


def _on_vertex(model_id: str, label: str) -> Route:
    if model_id.startswith("claude-"):
        return CLAUDE_ON_VERTEX
    if not model_id.startswith(("gemini", "publishers/google/")):
        raise ConfigError(
            f"{label}: of Vertex AI only Gemini and Claude models are called: leave the entry out, or write a TOML one with "
            'provider = "langchain"'
        )
    return ROUTES["vertex_ai"]


def split_model(model: str, params: Mapping[str, Any]) -> tuple[str, str]:
    """Return the provider's prefix and the model id of a model string.

    A missing prefix is guessed from the model's name. If that fails, the whole string is both prefix and model id.
    """
    named = params.get("custom_llm_provider")
    if isinstance(named, str):
        return named, model.removeprefix(f"{named}/")
    prefix, slash, model_id = model.partition("/")
    if slash:
        return prefix, model_id
    return next((provider for pattern, provider in _BY_NAME if pattern.match(model)), prefix), model
