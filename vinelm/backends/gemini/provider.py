"""Gemini through langchain-google-genai: by an API key, or on Google Cloud's Vertex AI."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from langchain_core.language_models import BaseChatModel

from vinelm.backends.gemini.batches import GeminiBatches
from vinelm.backends.keys import named_key
from vinelm.backends.making import check_base, check_options, made, split_options
from vinelm.backends.remote.backend import RemoteBackend
from vinelm.backends.remote.provider import BatchApi, Provider
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import ConfigError
from vinelm.extras import required_extra

KEY_ENV = "GEMINI_API_KEY"
PLACE = ("project", "location")


class GeminiProvider(Provider):
    """Creates ``ChatGoogleGenerativeAI`` models. The ``options`` of a catalog entry are settings of that class
    (``temperature``, ``thinking_budget``, ``safety_settings`` ...), or the API's ``thinking_config``.
    """

    def check(self, model: Model) -> None:
        """Raise :class:`ConfigError` if the model's key or the package is missing, or an option is unknown."""
        with required_extra("gemini", f"model {model.name!r}: Gemini"):
            import langchain_google_genai  # noqa: F401
        self.credentials(model)
        self._settings(model)

    def credentials(self, model: Model) -> dict[str, Any]:
        """Return those settings of a new chat model that hold its credentials or select the Google service."""
        return {"vertexai": False, "api_key": named_key(model, KEY_ENV)}

    def make(self, model: Model) -> BaseChatModel:
        """Create a LangChain chat model that calls ``model``, a model of the catalog; see :meth:`Provider.make`."""
        self.check(model)
        from langchain_google_genai import ChatGoogleGenerativeAI

        return made(
            model,
            ChatGoogleGenerativeAI,
            **self._settings(model),
            **self.credentials(model),
            model=model.model_id,
            base_url=model.api_base,
            max_output_tokens=model.max_tokens,
            timeout=model.timeout_s,
            max_retries=1,  # counts attempts: 0 stands for Google's default of several
        )

    def context_tokens(self, model: Model) -> int | None:
        """Return the model's input limit in tokens, as the API reports it; None if the API does not report it."""
        chat: Any = self.make(model)  # kept alive, since its client closes with it
        found = chat.client.models.get(model=model.model_id).input_token_limit
        return found if isinstance(found, int) else None

    def batches(self) -> BatchApi | None:
        """Return the interface to Gemini's batches; see :meth:`Provider.batches`. A subclass returns None if it supports no
        batches.
        """
        return GeminiBatches()

    def _settings(self, model: Model) -> dict[str, Any]:
        from langchain_google_genai import ChatGoogleGenerativeAI

        options = {key: value for key, value in model.options.items() if key not in PLACE}
        thinking = options.pop("thinking_config", None)
        if isinstance(thinking, dict):
            options |= {key: value for key, value in thinking.items() if value is not None}
        if "stop_sequences" in options:
            options["stop"] = options.pop("stop_sequences")
        settings, unknown = split_options(options, ChatGoogleGenerativeAI)
        if unknown:
            raise ConfigError(
                f"model {model.name!r}: option {next(iter(unknown))!r} is no setting of ChatGoogleGenerativeAI: see its names"
            )
        # A key in a header that the HTTP library does not know would be sent along when a server redirects.
        return {**settings, "client_args": {**(settings.get("client_args") or {}), "follow_redirects": False}}


class VertexProvider(GeminiProvider):
    """Creates chat models for Gemini on Vertex AI, with a Google Cloud project and its default credentials, or with a key of
    Vertex's express mode.

    The options ``project`` and ``location`` select the project (default: the variable ``GOOGLE_CLOUD_PROJECT``) and the
    location (default: the variable ``GOOGLE_CLOUD_LOCATION``, otherwise ``global``).
    """

    def credentials(self, model: Model) -> dict[str, Any]:
        """Return the chat model's credentials: the key of Vertex's express mode if the entry names a key, otherwise the
        project, the location and Google's default credentials.
        """
        if model.api_key_env is not None:
            return {"vertexai": True, "api_key": named_key(model, "GOOGLE_API_KEY")}
        project, location = where(model)
        return {"vertexai": True, "project": project, "location": location, "credentials": _found(model)}

    def batches(self) -> None:
        """Return None: Vertex runs batches as jobs over files in its own storage, which are not supported."""
        return None


def _found(model: Model) -> Any:
    import google.auth

    with suppress(google.auth.exceptions.GoogleAuthError):  # its message may quote the credentials file
        return google.auth.default(scopes=("https://www.googleapis.com/auth/cloud-platform",))[0]
    raise ConfigError(
        f"model {model.name!r}: no Google credentials: set GOOGLE_APPLICATION_CREDENTIALS to a key file, or run "
        "gcloud auth application-default login"
    )


def where(model: Model) -> tuple[str | None, str | None]:
    """Return the Google Cloud project and location of a catalog entry.

    Both are None if the entry has a key of Vertex's express mode. Raises :class:`ConfigError` if there is neither a project nor
    a key, or if the entry has both.
    """
    given = [model.options.get(name) for name in PLACE]
    if model.api_key_env is not None:
        if any(given):
            raise ConfigError(
                f"model {model.name!r}: a key of Vertex's express mode already has a project: leave out project and location"
            )
        return None, None
    project = given[0] or os.environ.get("GOOGLE_CLOUD_PROJECT")
    if not project:
        raise ConfigError(
            f'model {model.name!r}: no Google Cloud project: add options = {{ project = "..." }} or set GOOGLE_CLOUD_PROJECT'
        )
    return str(project), str(given[1] or os.environ.get("GOOGLE_CLOUD_LOCATION") or "global")


def create(settings: ProviderSettings) -> RemoteBackend:
    """Create the backend of the catalog's Gemini models. Makes no call. Raises :class:`ConfigError` for invalid settings."""
    for model in settings.models:
        check_options(model)
        check_base(model)
    return RemoteBackend(settings, GeminiProvider())


def create_vertex(settings: ProviderSettings) -> RemoteBackend:
    """Create the backend of the catalog's Vertex models. Makes no call. Raises :class:`ConfigError` for invalid settings."""
    for model in settings.models:
        check_options(model)
        check_base(model)
        where(model)
    return RemoteBackend(settings, VertexProvider())
