"""Azure OpenAI deployments, over the openai SDK's Azure client. Calls spend money.

Wire format: https://learn.microsoft.com/azure/ai-foundry/openai/reference; Azure's newer ``/openai/v1`` endpoint speaks plain
OpenAI: use ``provider = "openai"`` with that ``api_base`` for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from vinelm.backends.http.clients import library_of_openai, sdk_clients
from vinelm.backends.openai.backend import OpenAITransport
from vinelm.backends.openai.client import LOGGERS, elsewhere, named_key
from vinelm.backends.openai.request import check_options
from vinelm.backends.remote.backend import RemoteBackend, check_base
from vinelm.backends.remote.client_pool import EventLoopClients, keep_quiet
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import ConfigError

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI


class AzureTransport(OpenAITransport):
    """OpenAI's transport, with Azure's URL (``/openai/deployments/MODEL``) and key header.

    In a catalog entry, ``model`` is the deployment, ``api_base`` the resource, and the option ``api_version`` the version of
    the API. Other options are added to the request's body unchanged.
    """

    def batches(self) -> None:
        """None: Azure's batches need deployments of their own."""
        return None

    def check(self, model: Model) -> None:
        """Raise :class:`ConfigError` if the entry's key is missing."""
        named_key(model, "AZURE_API_KEY")

    def context_tokens(self, model: Model) -> int | None:
        """Return None: Azure does not report the context length."""
        return None

    def _place(self, model: Model) -> Hashable:
        return (model.api_base, model.api_key_env, model.options["api_version"])

    def _made(self, model: Model) -> EventLoopClients[OpenAI, AsyncOpenAI]:
        keep_quiet(*LOGGERS)
        key = named_key(model, "AZURE_API_KEY")

        def load() -> tuple[Any, Any, str, Mapping[str, Any]]:
            from openai import AsyncAzureOpenAI, AzureOpenAI

            settings = {
                "api_key": key,
                "azure_endpoint": str(model.api_base).rstrip("/"),
                "api_version": str(model.options["api_version"]),
                "max_retries": 0,
                "default_headers": elsewhere(),
            }
            return _checked(AzureOpenAI, model), _checked(AsyncAzureOpenAI, model), library_of_openai(), settings

        return sdk_clients(load)


def _checked(kind: Callable[..., Any], model: Model) -> Callable[..., Any]:
    """``kind``, whose clients are refused where an older SDK sends the environment's Entra token instead of the entry's key."""

    def make(**settings: Any) -> Any:
        client = kind(**settings)
        if getattr(client, "_azure_ad_token", None) is not None:
            raise ConfigError(
                f"model {model.name!r}: this openai package sends AZURE_OPENAI_AD_TOKEN instead of {model.api_key_env}: "
                "unset it"
            )
        return client

    return make


def create(settings: ProviderSettings) -> RemoteBackend[AzureTransport]:
    """Create the backend of the catalog's Azure deployments. Makes no call. :class:`ConfigError` for invalid settings."""
    where = 'say where the resource is: "https://NAME.openai.azure.com"'
    for model in settings.models:
        check_options(model, model.options)
        check_base(model, where)
        if model.api_base is None:
            raise ConfigError(f"model {model.name!r}: api_base is None: {where}")
        if not isinstance(model.options.get("api_version"), str):
            raise ConfigError(f'model {model.name!r}: no API version: add options = {{ api_version = "2025-04-01-preview" }}')
    return RemoteBackend(settings, AzureTransport())
