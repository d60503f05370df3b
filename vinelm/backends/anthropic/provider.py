"""Claude through langchain-anthropic, at Anthropic and at servers with its Messages API."""

from __future__ import annotations

from functools import cache
from typing import Any

from langchain_core.language_models import BaseChatModel

from vinelm.backends.anthropic.batches import HOME, KEY_ENV, VERSION, AnthropicBatches, own_headers
from vinelm.backends.keys import named_key
from vinelm.backends.making import check_base, check_options, keep_quiet, made, split_options
from vinelm.backends.remote.backend import RemoteBackend
from vinelm.backends.remote.marks import ControlMarks
from vinelm.backends.remote.provider import BatchApi, Provider
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import ConfigError
from vinelm.extras import required_extra

LISTING_S = 15.0


class AnthropicProvider(Provider):
    """Creates ``ChatAnthropic`` models. The ``options`` of a catalog entry are settings of that class (``temperature``,
    ``thinking``, ``betas`` ...); other options are sent as parameters of the API, which rejects unknown ones.
    """

    marks = ControlMarks()

    def check(self, model: Model) -> None:
        """Raise :class:`ConfigError` if the model's key or the package is missing."""
        named_key(model, KEY_ENV)
        with required_extra("anthropic", f"model {model.name!r}: Anthropic"):
            import langchain_anthropic  # noqa: F401

    def make(self, model: Model) -> BaseChatModel:
        """Return a new chat model for the catalog entry ``model``; see :meth:`Provider.make`."""
        self.check(model)
        keep_quiet("anthropic._base_client")
        kind = _chat_class()
        options = dict(model.options)
        headers = {"anthropic-version": str(options.pop("anthropic_version", VERSION))}
        if isinstance(options.get("betas"), str):
            options["betas"] = [options["betas"]]
        settings, body = split_options(options, kind)
        if body:
            settings["model_kwargs"] = {**body, **(settings.get("model_kwargs") or {})}
        return made(
            model,
            kind,
            **settings,
            model=model.model_id,
            api_key=named_key(model, KEY_ENV),
            base_url=model.api_base or HOME,
            max_tokens=model.max_tokens,
            timeout=model.timeout_s,
            max_retries=0,
            default_headers=headers,
            stream_usage=True,
        )

    def context_tokens(self, model: Model) -> int | None:
        """Return the maximum length of a prompt in tokens, as the server states it; None if the server does not state it."""
        client: Any = self.make(model)._client  # type: ignore[attr-defined]
        tokens = getattr(client.models.retrieve(model.model_id, timeout=LISTING_S), "max_input_tokens", None)
        return tokens if isinstance(tokens, int) else None

    def batches(self) -> BatchApi:
        """Return the interface to the provider's batches; see :meth:`Provider.batches`."""
        return AnthropicBatches()


@cache
def _chat_class() -> type[BaseChatModel]:
    from langchain_anthropic import ChatAnthropic

    class CatalogAnthropic(ChatAnthropic):
        """A ``ChatAnthropic`` that sends only the catalog entry's key; it ignores credentials that the SDK finds in the
        environment.
        """

        @property
        def _llm_type(self) -> str:
            return "anthropic-chat"

        @property
        def _client_params(self) -> dict[str, Any]:
            params = dict(ChatAnthropic._client_params.func(self))  # type: ignore[attr-defined]
            own = own_headers(params["api_key"], str(params["base_url"]))
            headers = {**(params.get("default_headers") or {}), **own}
            return {**params, "default_headers": headers}

    return CatalogAnthropic


def create(settings: ProviderSettings) -> RemoteBackend:
    """Create the backend of the catalog's Anthropic models. Makes no call. Raises :class:`ConfigError` for invalid settings."""
    for model in settings.models:
        check_options(model, "system", "tools", "tool_choice")
        check_base(model)
        thinking = model.options.get("thinking")
        budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
        if isinstance(budget, int) and budget >= model.max_tokens:
            raise ConfigError(
                f"model {model.name!r}: thinking.budget_tokens = {budget} leaves no room in max_tokens = {model.max_tokens}: "
                "raise max_tokens"
            )
    return RemoteBackend(settings, AnthropicProvider())
