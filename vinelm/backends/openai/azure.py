"""Azure OpenAI's deployments, over the openai SDK's own Azure client. Spends money.

Wire format: https://learn.microsoft.com/azure/ai-foundry/openai/reference; Azure's newer ``/openai/v1`` endpoint speaks plain
OpenAI: for that one ``provider = "openai"`` with that ``api_base``.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from vinelm.backends.openai.backend import OpenAIWire
from vinelm.backends.openai.client import LOGGERS, elsewhere, named_key
from vinelm.backends.openai.request import check_options
from vinelm.backends.remote.backend import RemoteBackend, check_base
from vinelm.backends.remote.client_pool import EventLoopClients, keep_quiet
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import ConfigError

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI


class AzureWire(OpenAIWire):
    """OpenAI's wire, to ``/openai/deployments/MODEL`` and with Azure's key header."""

    def check(self, model: Model) -> None:
        """:class:`ConfigError` without the entry's key."""
        named_key(model, "AZURE_API_KEY")

    def context_tokens(self, model: Model) -> int | None:
        """Azure does not say it."""
        return None

    def _place(self, model: Model) -> Hashable:
        return (model.api_base, model.api_key_env, model.options["api_version"])

    def _made(self, model: Model) -> EventLoopClients[OpenAI, AsyncOpenAI]:
        keep_quiet(*LOGGERS)
        settings: dict[str, Any] = {
            "api_key": named_key(model, "AZURE_API_KEY"),
            "azure_endpoint": str(model.api_base).rstrip("/"),
            "api_version": str(model.options["api_version"]),
            "max_retries": 0,
        }

        def make() -> tuple[OpenAI, Any]:
            from openai import AzureOpenAI

            client = AzureOpenAI(**settings, default_headers=elsewhere())
            _refuse_ambient_token(client, model)
            return client, client.close

        def amake() -> tuple[AsyncOpenAI, Any]:
            from openai import AsyncAzureOpenAI

            client = AsyncAzureOpenAI(**settings, default_headers=elsewhere())
            _refuse_ambient_token(client, model)
            return client, client.close

        return EventLoopClients(make, amake)


class AzureBackend(RemoteBackend[AzureWire]):
    """Chat models that are deployed on Azure OpenAI: ``model`` is the deployment, ``api_base`` the resource, and the option
    ``api_version`` the API's version. Other options go into the request's body as they are.
    """


def _refuse_ambient_token(client: Any, model: Model) -> None:
    """Older SDKs send the environment's Entra token in place of the key that the entry names."""
    if getattr(client, "_azure_ad_token", None) is not None:
        raise ConfigError(
            f"model {model.name!r}: this openai package sends AZURE_OPENAI_AD_TOKEN instead of {model.api_key_env}: unset it"
        )


def create(setup: ProviderSettings) -> AzureBackend:
    """The backend for a catalog's Azure deployments. Makes no call. :class:`ConfigError` names what does not fit."""
    where = 'say where the resource is: "https://NAME.openai.azure.com"'
    for model in setup.models:
        check_options(model, model.options)
        check_base(model, where)
        if model.api_base is None:
            raise ConfigError(f"model {model.name!r}: api_base is None: {where}")
        if not isinstance(model.options.get("api_version"), str):
            raise ConfigError(f'model {model.name!r}: no API version: add options = {{ api_version = "2025-04-01-preview" }}')
    return AzureBackend(setup, AzureWire())
