"""SGLang through its chat completions API, with SGLang's additional functions: cache flush and server info."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vinelm.backends.making import check_base, check_options
from vinelm.backends.openai.provider import LISTING_S, OpenAIProvider
from vinelm.backends.remote.backend import RemoteBackend
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import ConfigError
from vinelm.foreign_code import answered

WHERE = 'say where the engine is: "http://host:30000"'


class SGLangProvider(OpenAIProvider):
    """Creates SGLang's chat models. Options that are not settings of the chat model are sampling parameters (``top_k``,
    ``min_p``, ``regex`` ...).
    """

    def base(self, model: Model) -> str:
        """Return the base URL of the server's API for chat completions, which ends in ``/v1``."""
        return f"{_server(model)}/v1"

    def context_tokens(self, model: Model) -> int | None:
        """Return the context length in tokens that the server reports; None if it reports none."""
        plain = self.ask(model, "get", "/get_server_info", object)
        known = plain if isinstance(plain, Mapping) else {}
        found = known.get("context_length") or known.get("max_req_input_len")
        return found if isinstance(found, int) else None

    def ask(self, model: Model, method: str, path: str, kind: Any) -> Any:
        """Send an administrative request to the engine of ``model``, and return its answer, converted to the type ``kind``.

        ``method`` is the HTTP method in lower case, ``path`` follows the server's address. Errors of the HTTP client are not
        translated.
        """
        client: Any = self.make(model).root_client.with_options(base_url=_server(model))  # type: ignore[attr-defined]
        return getattr(client, method)(path, cast_to=kind, options={"timeout": LISTING_S})

    def batches(self) -> None:
        """Return None: a self-hosted engine has no batches."""
        return None


class SGLangBackend(RemoteBackend):
    """The backend of models that SGLang servers serve. It can also flush a server's prefix cache."""

    def flush_cache(self, model: Model) -> bool:
        """Flush the engine's prefix cache. Return False if the engine is busy or does not answer."""
        provider = self.provider
        assert isinstance(provider, SGLangProvider)
        return answered(lambda: provider.ask(model, "post", "/flush_cache", str) is not None, otherwise=False)


def _server(model: Model) -> str:
    return str(model.api_base).rstrip("/").removesuffix("/v1")


def create(settings: ProviderSettings) -> SGLangBackend:
    """Create the backend of the catalog's SGLang models. Makes no call. Raises :class:`ConfigError` for invalid settings."""
    for model in settings.models:
        for gone in ("chat_template", "incremental_stream"):
            if gone in model.options:
                raise ConfigError(
                    f"model {model.name!r}: option {gone!r}: the engine renders chats itself: start it with --chat-template"
                )
        check_options(model)
        check_base(model, WHERE)
        if model.api_base is None:
            raise ConfigError(f"model {model.name!r}: api_base is None: {WHERE}")
    return SGLangBackend(settings, SGLangProvider())
