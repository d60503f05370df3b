"""Gemini models on Google Cloud's Vertex AI over google-genai (extra ``gemini``). Calls spend money.

Wire format: https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Hashable
from contextlib import suppress
from typing import Any

from vinelm.backends.gemini.backend import GeminiTransport
from vinelm.backends.gemini.request import check_options
from vinelm.backends.openai.client import named_key
from vinelm.backends.remote.backend import RemoteBackend, check_base
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import ConfigError
from vinelm.extras import required_extra

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


class VertexTransport(GeminiTransport):
    """Gemini's transport, with a Google Cloud project and application default credentials.

    The options ``project`` and ``location`` select the project (default: ``GOOGLE_CLOUD_PROJECT``) and location (default:
    ``GOOGLE_CLOUD_LOCATION``, else ``global``). Everything else is as in :class:`GeminiTransport`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._credentials: Any = None
        self._credentials_lock = threading.Lock()

    def connect(self, model: Model) -> None:
        """Create the client and refresh its token, before the latency of an attempt is measured."""
        super().connect(model)
        self._refresh()

    async def aconnect(self, model: Model) -> None:
        """Like :meth:`connect`, without blocking the event loop."""
        await super().aconnect(model)
        if self._credentials is not None and not self._credentials.valid:
            await asyncio.to_thread(self._refresh)

    def credentials(self, model: Model) -> dict[str, Any]:
        """Return the key of Vertex's express mode if the entry names one, else project, location and Google's credentials."""
        if model.api_key_env is not None:
            return {"vertexai": True, "api_key": named_key(model, "GOOGLE_API_KEY")}
        project, location = _where(model)
        return {"vertexai": True, "project": project, "location": location, "credentials": self._found(model)}

    def batches(self) -> None:
        """None: the batches of this service are jobs over files in its own storage."""
        return None

    def _place(self, model: Model) -> Hashable:
        return (model.api_base, model.api_key_env, *_where(model))

    def _found(self, model: Model) -> Any:
        with required_extra("gemini", f"model {model.name!r}: Vertex AI"):
            import google.auth
        with self._credentials_lock:
            if self._credentials is None:
                with suppress(google.auth.exceptions.GoogleAuthError):  # its message may quote the credentials file
                    self._credentials, _ = google.auth.default(scopes=SCOPES)
            if self._credentials is None:
                raise ConfigError(
                    f"model {model.name!r}: no Google credentials: set GOOGLE_APPLICATION_CREDENTIALS to a key file, or run "
                    "gcloud auth application-default login"
                )
            return self._credentials

    def _refresh(self) -> None:
        """Refresh an expired token. A failure is ignored here: the attempt will report it."""
        if self._credentials is None:
            return
        with self._credentials_lock, suppress(Exception):
            if not self._credentials.valid:
                from google.auth.transport.requests import Request

                self._credentials.refresh(Request())


def _where(model: Model) -> tuple[str | None, str | None]:
    """Return project and location; :class:`ConfigError` if there is no project, or the entry has both them and a key."""
    given = [model.options.get(name) for name in ("project", "location")]
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


def create(settings: ProviderSettings) -> RemoteBackend[VertexTransport]:
    """Create the backend of the catalog's Vertex models. Makes no call. :class:`ConfigError` for invalid settings."""
    for model in settings.models:
        check_options(model, model.options)
        check_base(model)
        _where(model)
    return RemoteBackend(settings, VertexTransport())
