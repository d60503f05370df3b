"""OpenAI through langchain-openai, Azure's deployments, and servers with OpenAI's chat completions (vLLM, SGLang, gateways)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from langchain_core.language_models import BaseChatModel

from vinelm.backends.keys import named_key, own_or_no_key
from vinelm.backends.making import check_base, check_options, keep_quiet, made, split_options
from vinelm.backends.openai.batches import OpenAIBatches
from vinelm.backends.remote.backend import RemoteBackend
from vinelm.backends.remote.provider import CHAT, RESPONSES, BatchApi, ChatAddress, Provider
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import ConfigError
from vinelm.extras import required_extra

KEY_ENV = "OPENAI_API_KEY"
AZURE_KEY_ENV = "AZURE_API_KEY"
HOME = "https://api.openai.com/"
_IN_BODY = frozenset(
    {
        "temperature", "top_p", "seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs",
        "top_logprobs", "reasoning_effort", "verbosity", "service_tier", "store", "metadata",
    }
)  # fmt: skip
"""Settings of langchain-openai's class that are parameters of chat completions under the same name."""
_IN_RESPONSES = frozenset({"temperature", "top_p", "top_logprobs", "reasoning", "service_tier", "store", "metadata", "include"})
"""Settings of langchain-openai's class that are parameters of OpenAI's Responses API under the same name."""
_INSIDE_RESPONSES = {"reasoning_effort": ("reasoning", "effort"), "verbosity": ("text", "verbosity")}
"""Settings that are nested in a parameter of Responses; the parameter of a call replaces them."""
_NOT_SENT = frozenset({"api_version", "max_tokens_parameter"})
_HOW_TO_ASK = frozenset({"use_responses_api", "output_version"})
"""Settings by which the class chooses the form of a call; with a gateway, the client has chosen the form."""
LISTING_S = 15.0
"""Timeout in seconds for a server's list of its models."""
_RESOURCE = 'say where the resource is: "https://NAME.openai.azure.com"'


class OpenAIProvider(Provider):
    """Creates chat models for OpenAI's own servers and for other servers with OpenAI's API.

    OpenAI's own servers are called by langchain-openai's ``ChatOpenAI``, other servers by
    :class:`~vinelm.backends.openai.compatible.CompatibleChat`, which also handles fields that OpenAI lacks.

    The ``options`` of a catalog entry are settings of the class (``temperature``, ``reasoning_effort``, ``service_tier`` ...).
    Other options are added to the request's body unchanged, so that a server's own parameters (``top_k``,
    ``chat_template_kwargs``) work. The server rejects unknown ones.
    """

    def check(self, model: Model) -> None:
        """Raise :class:`ConfigError` if the entry's key or the package is missing."""
        own_or_no_key(model, KEY_ENV)
        with required_extra("openai", f"model {model.name!r}: provider {model.provider}"):
            import langchain_openai  # noqa: F401

    def make(self, model: Model) -> BaseChatModel:
        """Create a LangChain chat model that calls ``model``, a model of the catalog; see :meth:`Provider.make`."""
        self.check(model)
        keep_quiet("openai._base_client")
        key, base = own_or_no_key(model, KEY_ENV), self.base(model)
        if base is None or base.startswith(HOME):
            from langchain_openai import ChatOpenAI

            # Set explicitly, or the package would use an address from the environment, and send the entry's key there.
            return made(model, ChatOpenAI, **_settings(model, ChatOpenAI, key, base or f"{HOME}v1"))
        from vinelm.backends.openai.compatible import CompatibleChat

        options = {name: value for name, value in model.options.items() if name != "max_tokens_parameter"}
        chat = made(model, CompatibleChat, **_settings(model, CompatibleChat, key, base, options))
        chat.limit_parameter = str(model.options.get("max_tokens_parameter", "max_tokens"))
        # The account that the SDK reads from the environment is for OpenAI only.
        for client in (chat.root_client, chat.root_async_client):
            client.organization = client.project = None
        return chat

    def base(self, model: Model) -> str | None:
        """Return the URL of the model's API (the catalog entry's ``api_base``); None for OpenAI's own servers."""
        return model.api_base

    def wire(self, model: Model, form: str = CHAT) -> ChatAddress | None:
        """Return the URL, headers and body fields for sending raw HTTP requests to the entry's server; see
        :meth:`Provider.wire`.
        """
        base = self.base(model) or f"{HOME}v1"
        limit = (
            "max_completion_tokens" if base.startswith(HOME) else str(model.options.get("max_tokens_parameter", "max_tokens"))
        )
        limit = "max_output_tokens" if form == RESPONSES else limit
        key, body = own_or_no_key(model, KEY_ENV), _body_of(model, form)
        url = f"{base.rstrip('/')}/{form}"
        return None if body is None else ChatAddress(url, {"authorization": f"Bearer {key}"}, body, limit)

    def context_tokens(self, model: Model) -> int | None:
        """Return the context length in tokens that the server's list of models states, as vLLM and SGLang do; None if it states
        none.
        """
        if model.api_base is None:
            return None
        client: Any = self.make(model).root_client  # type: ignore[attr-defined]
        for listed in client.models.list(timeout=LISTING_S).data:
            if listed.id == model.model_id and isinstance(found := getattr(listed, "max_model_len", None), int):
                return found
        return None

    def batches(self) -> BatchApi | None:
        """Return the interface to the provider's batches; see :meth:`Provider.batches`."""
        return OpenAIBatches()

    def keeps_by_key(self, model: Model) -> bool:
        """Return whether requests may have the parameter ``prompt_cache_key``: True for OpenAI's own servers, since others may
        not know it.
        """
        return model.api_base is None


class AzureProvider(OpenAIProvider):
    """Creates chat models for Azure's deployments. In a catalog entry, ``model`` names the deployment, ``api_base`` the
    resource, and the option ``api_version`` the version of the API.
    """

    def check(self, model: Model) -> None:
        """Raise :class:`ConfigError` if the entry's key or the package is missing."""
        named_key(model, AZURE_KEY_ENV)
        with required_extra("openai", f"model {model.name!r}: Azure"):
            import langchain_openai  # noqa: F401

    def make(self, model: Model) -> BaseChatModel:
        """Create a LangChain chat model that calls ``model``, a model of the catalog; see :meth:`Provider.make`."""
        self.check(model)
        keep_quiet("openai._base_client")
        from langchain_openai import AzureChatOpenAI

        options = {key: value for key, value in model.options.items() if key not in ("api_version", "max_tokens_parameter")}
        settings = _settings(model, AzureChatOpenAI, named_key(model, AZURE_KEY_ENV), None, options)
        del settings["model"], settings["base_url"]
        where = {"azure_endpoint": str(model.api_base).rstrip("/"), "azure_deployment": model.model_id}
        chat = made(model, AzureChatOpenAI, **settings, **where, api_version=str(model.options["api_version"]))
        if chat.azure_ad_token is not None:
            raise ConfigError(
                f"model {model.name!r}: langchain-openai sends AZURE_OPENAI_AD_TOKEN instead of {model.api_key_env}: unset it"
            )
        for client in (chat.root_client, chat.root_async_client):
            client.organization = client.project = None
        return chat

    def wire(self, model: Model, form: str = CHAT) -> ChatAddress | None:
        """Return the URL, headers and body fields for sending raw HTTP requests to the deployment; see :meth:`Provider.wire`.

        Only the format of chat completions is supported; None for other formats.
        """
        body = _body_of(model, form)
        if body is None or form != CHAT:
            return None
        url = f"{str(model.api_base).rstrip('/')}/openai/deployments/{quote(model.model_id, safe='')}/chat/completions"
        version = quote(str(model.options["api_version"]), safe="")
        headers = {"api-key": named_key(model, AZURE_KEY_ENV)}
        return ChatAddress(f"{url}?api-version={version}", headers, body, "max_completion_tokens")

    def context_tokens(self, model: Model) -> int | None:
        """Return None: Azure does not report the context length."""
        return None

    def batches(self) -> None:
        """Return None: Azure's batches need separate deployments."""
        return None

    def keeps_by_key(self, model: Model) -> bool:
        """Return True: Azure accepts the parameter ``prompt_cache_key``."""
        return True


def _body_of(model: Model, form: str) -> dict[str, Any] | None:
    """Return the parameters that the entry's options add to the body of a raw HTTP request in the API format ``form``.

    Return None if an option works only through the chat model's class, so that raw requests are impossible.
    """
    if not model.options:  # almost always the case, and checked for each call
        return {}
    from langchain_openai import ChatOpenAI

    not_sent = _NOT_SENT | _HOW_TO_ASK if form == RESPONSES else _NOT_SENT
    given = {name: value for name, value in model.options.items() if name not in not_sent}
    settings, body = split_options(given, ChatOpenAI)
    for inside in ("model_kwargs", "extra_body"):
        body |= settings.pop(inside, None) or {}
    known = {name: value for name, value in settings.items() if value is not None}
    if form == RESPONSES:
        for name in _INSIDE_RESPONSES.keys() & known.keys():
            outer, inner = _INSIDE_RESPONSES[name]
            body[outer] = {**(body.get(outer) or known.pop(outer, None) or {}), inner: known.pop(name)}
    return {**known, **body} if known.keys() <= (_IN_RESPONSES if form == RESPONSES else _IN_BODY) else None


def _settings(
    model: Model, kind: type[BaseChatModel], key: str, base: str | None, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    settings, body = split_options(model.options if options is None else options, kind)
    if body:
        settings["extra_body"] = {**body, **(settings.get("extra_body") or {})}
    return {
        **settings,
        "model": model.model_id,
        "api_key": key,
        "base_url": base,
        "max_tokens": model.max_tokens,
        "timeout": model.timeout_s,
        "max_retries": 0,
        "stream_usage": True,
    }


def create(settings: ProviderSettings) -> RemoteBackend:
    """Create the backend of the catalog's OpenAI-like models. Makes no call. Raises :class:`ConfigError` for invalid
    settings.
    """
    for model in settings.models:
        check_options(model, "stream_options", "extra_headers", "extra_query")
        check_base(model)
        if model.options.get("max_tokens_parameter", "max_tokens") not in ("max_tokens", "max_completion_tokens"):
            raise ConfigError(f"model {model.name!r}: max_tokens_parameter must be one of max_tokens, max_completion_tokens")
        if model.api_base is None and model.api_key_env is None:
            named_key(model, KEY_ENV)  # raises if it is missing
    return RemoteBackend(settings, OpenAIProvider())


def create_azure(settings: ProviderSettings) -> RemoteBackend:
    """Create the backend of the catalog's Azure deployments. Makes no call. Raises :class:`ConfigError` for invalid
    settings.
    """
    for model in settings.models:
        check_options(model, "stream_options", "extra_headers", "extra_query")
        check_base(model, _RESOURCE)
        if model.api_base is None:
            raise ConfigError(f"model {model.name!r}: api_base is None: {_RESOURCE}")
        if not isinstance(model.options.get("api_version"), str):
            raise ConfigError(f'model {model.name!r}: no API version: add options = {{ api_version = "2025-04-01-preview" }}')
    return RemoteBackend(settings, AzureProvider())
