"""The providers of LiteLLM's model strings, and what they correspond to here.

Base URLs and variables: https://docs.litellm.ai/docs/providers
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from vinelm.errors import ConfigError


class Route(NamedTuple):
    """The provider that a prefix of LiteLLM's model strings stands for.

    Args:
        provider: The provider here.
        key_envs: The default environment variables of the API key: the first one that is set counts.
        api_base: The URL of the service; None takes the entry's, or that of the variable ``base_env``.
        needs_base: A URL is required.
        base_env: The environment variable of the URL.
        prefix: Put before the model's id.
        is_own_server: Calls to it are not billed by anyone.
        path: Put after a URL that does not end with it.
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


def _service(api_base: str, *key_envs: str, base_env: str | None = None) -> Route:
    """A service with OpenAI's protocol at a known address."""
    return Route("openai", key_envs, api_base, base_env=base_env)


def _server(base_env: str | None, api_base: str | None = None, *key_envs: str) -> Route:
    """A server of one's own with OpenAI's protocol."""
    return Route("openai", key_envs, api_base, base_env=base_env, needs_base=True, is_own_server=True)


ROUTES: Mapping[str, Route] = MappingProxyType(
    {
        "ai21": _service("https://api.ai21.com/studio/v1", "AI21_API_KEY"),
        "ai21_chat": _service("https://api.ai21.com/studio/v1", "AI21_API_KEY"),
        "aiml": _service("https://api.aimlapi.com/v1", "AIML_API_KEY"),
        "anthropic": Route("anthropic", ("ANTHROPIC_API_KEY",), base_env="ANTHROPIC_API_BASE"),
        "azure": Route("azure", ("AZURE_API_KEY",), needs_base=True, base_env="AZURE_API_BASE"),
        "azure_ai": Route("openai", ("AZURE_AI_API_KEY",), needs_base=True, base_env="AZURE_AI_API_BASE"),
        "baseten": _service("https://inference.baseten.co/v1", "BASETEN_API_KEY"),
        "bedrock": Route("bedrock"),
        "bedrock_converse": Route("bedrock"),
        "cerebras": _service("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
        "codestral": _service("https://codestral.mistral.ai/v1", "CODESTRAL_API_KEY"),
        "cohere": _service("https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
        "cohere_chat": _service("https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
        "custom_openai": Route("openai", needs_base=True),
        "dashscope": _service("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
        "databricks": Route("openai", ("DATABRICKS_API_KEY",), needs_base=True, base_env="DATABRICKS_API_BASE"),
        "deepinfra": _service("https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
        "deepseek": _service("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
        "docker_model_runner": _server("DOCKER_MODEL_RUNNER_API_BASE", "http://localhost:12434/engines/v1"),
        "featherless_ai": _service("https://api.featherless.ai/v1", "FEATHERLESS_AI_API_KEY"),
        "fireworks_ai": _service("https://api.fireworks.ai/inference/v1", "FIREWORKS_AI_API_KEY", "FIREWORKS_API_KEY"),
        "friendliai": _service("https://api.friendli.ai/serverless/v1", "FRIENDLIAI_API_KEY", "FRIENDLI_TOKEN"),
        "gemini": Route("gemini", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
        "github": _service("https://models.inference.ai.azure.com", "GITHUB_API_KEY", base_env="GITHUB_API_BASE"),
        "groq": _service("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        "hosted_vllm": _server("HOSTED_VLLM_API_BASE", None, "HOSTED_VLLM_API_KEY"),
        "huggingface": _service("https://router.huggingface.co/v1", "HF_TOKEN", "HUGGINGFACE_API_KEY")._replace(path="/v1"),
        "hyperbolic": _service("https://api.hyperbolic.xyz/v1", "HYPERBOLIC_API_KEY"),
        "lambda_ai": _service("https://api.lambda.ai/v1", "LAMBDA_API_KEY"),
        "lemonade": _server("LEMONADE_API_BASE", "http://localhost:8000/api/v1"),
        "litellm_proxy": Route("openai", ("LITELLM_PROXY_API_KEY",), needs_base=True, base_env="LITELLM_PROXY_API_BASE"),
        "llamafile": _server("LLAMAFILE_API_BASE", "http://127.0.0.1:8080/v1"),
        "lm_studio": _server("LM_STUDIO_API_BASE", None, "LM_STUDIO_API_KEY"),
        "meta_llama": _service("https://api.llama.com/compat/v1", "LLAMA_API_KEY"),
        "minimax": _service("https://api.minimax.io/v1", "MINIMAX_API_KEY"),
        "mistral": _service("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        "moonshot": _service("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
        "nebius": _service("https://api.studio.nebius.ai/v1", "NEBIUS_API_KEY"),
        "novita": _service("https://api.novita.ai/v3/openai", "NOVITA_API_KEY"),
        "nscale": _service("https://inference.api.nscale.com/v1", "NSCALE_API_KEY"),
        "nvidia_nim": _service("https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY", base_env="NVIDIA_NIM_API_BASE"),
        "ollama": _server("OLLAMA_API_BASE", "http://localhost:11434")._replace(path="/v1"),
        "ollama_chat": _server("OLLAMA_API_BASE", "http://localhost:11434")._replace(path="/v1"),
        "openai": Route("openai", ("OPENAI_API_KEY",), base_env="OPENAI_API_BASE"),
        "openai_like": Route("openai", needs_base=True),
        "openrouter": _service("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        "ovhcloud": _service("https://oai.endpoints.kepler.ai.cloud.ovh.net/v1", "OVHCLOUD_API_KEY"),
        "perplexity": _service("https://api.perplexity.ai", "PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
        "sambanova": _service("https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
        "together_ai": _service("https://api.together.xyz/v1", "TOGETHERAI_API_KEY", "TOGETHER_API_KEY", "TOGETHER_AI_API_KEY"),
        "vercel_ai_gateway": _service("https://ai-gateway.vercel.sh/v1", "VERCEL_AI_GATEWAY_API_KEY"),
        "vertex_ai": Route("vertex"),
        "vertex_ai_beta": Route("vertex"),
        "vllm": _server("VLLM_API_BASE"),
        "volcengine": _service("https://ark.cn-beijing.volces.com/api/v3", "VOLCENGINE_API_KEY", "ARK_API_KEY"),
        "wandb": _service("https://api.inference.wandb.ai/v1", "WANDB_API_KEY"),
        "xai": _service("https://api.x.ai/v1", "XAI_API_KEY"),
        "xinference": _server("XINFERENCE_API_BASE", "http://127.0.0.1:9997/v1"),
        "zai": _service("https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
    }
)
AZURE_V1 = ("v1", "latest", "preview")
"""API versions that select Azure's ``/openai/v1`` endpoint, which has the plain OpenAI protocol."""
CLAUDE_ON_VERTEX = Route("langchain", prefix="google_anthropic_vertex:")
"""LangChain's package for Claude on Vertex AI."""
_BY_NAME = (
    (re.compile(r"gpt-|chatgpt-|o\d"), "openai"),
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"gemini-"), "vertex_ai"),  # as LiteLLM takes it
    (re.compile(r"command-"), "cohere"),
)
_AZURE_SERIES = re.compile(r"^(o_series|gpt5_series|responses)/")
_BEDROCK_WAYS = re.compile(r"^(converse_like|converse|invoke)/")
_LOCAL_HOST = re.compile(r"localhost|[^.]+|.*\.(local|localhost|internal|lan|home|svc|cluster\.local)", re.I)
_AWS_REGION = re.compile(r"^([a-z]{2}(?:-[a-z]+)+-\d)/")


class Called(NamedTuple):
    """The parts of a model string: its prefix, the prefix's route, the provider's id of the model, the AWS region in it."""

    prefix: str
    route: Route
    model_id: str
    region: str | None = None


def is_private(url: str) -> bool:
    """Return whether the address is one of a private network: a loopback or private IP address, or a host without a domain."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:
        return bool(_LOCAL_HOST.fullmatch(host))


def route_of(model: Any, params: Mapping[str, Any], label: str) -> Called:
    """Read a model string.

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


def _split(model: str, params: Mapping[str, Any]) -> tuple[str, str]:
    named = params.get("custom_llm_provider")
    if isinstance(named, str):
        return named, model.removeprefix(f"{named}/")
    prefix, slash, model_id = model.partition("/")
    if slash:
        return prefix, model_id
    return next((provider for pattern, provider in _BY_NAME if pattern.match(model)), prefix), model
