"""Any LangChain chat model: objects that the application passes in, and ``provider:model`` of LangChain's integrations."""

from __future__ import annotations

from collections.abc import Mapping

from langchain_core.language_models import BaseChatModel

from vinelm.backends.making import cannot_make, check_options
from vinelm.backends.remote.backend import RemoteBackend
from vinelm.backends.remote.inner import InnerChat
from vinelm.backends.remote.provider import Provider
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import ConfigError
from vinelm.extras import required_extra
from vinelm.foreign_code import explained


class LangChainProvider(Provider):
    """Provides chat models of any LangChain integration. Objects that the application passes in keep their settings, but
    their own retries are switched off. The models of other entries are made by ``init_chat_model``.
    """

    streams = False  # an object is called as its owner calls it

    def __init__(self, live: Mapping[str, BaseChatModel]) -> None:
        self._live = live

    def check(self, model: Model) -> None:
        """Raise :class:`ConfigError` if the chat model cannot be made."""
        if model.name not in self._live:
            self.make(model)

    def inner(self, model: Model) -> InnerChat:
        """Return the application's own chat model object for the entry if there is one, otherwise a chat model made from the
        entry.
        """
        given = self._live.get(model.name)
        return InnerChat(given) if given is not None else super().inner(model)

    def make(self, model: Model) -> BaseChatModel:
        """Create the chat model of the catalog entry ``model``; see :meth:`Provider.make`."""
        if ":" not in model.model_id:
            raise ConfigError(
                f"model {model.name!r}: was a ready chat model of another process: pass it again, "
                f"VineLM(models={{{model.name!r}: ...}})"
            )
        with required_extra("langchain", f"model {model.name!r}: provider langchain"):
            from langchain.chat_models import init_chat_model
        options = {"max_tokens": model.max_tokens, "timeout": model.timeout_s, "max_retries": 0, **model.options}
        if model.api_base is not None:
            options["base_url"] = model.api_base

        def failed(error: Exception) -> ConfigError:
            if isinstance(error, ImportError):
                package = model.model_id.partition(":")[0].replace("_", "-")
                return cannot_make(model, error, f"its LangChain package is missing: pip install langchain-{package}")
            return cannot_make(model, error, "does init_chat_model know the provider, and is its key in the environment?")

        with explained(failed, hides=True):
            chat: BaseChatModel = init_chat_model(model.model_id, **options)
            return chat


def create(settings: ProviderSettings) -> RemoteBackend:
    """Create the backend of the catalog's LangChain models. Makes no call. Raises :class:`ConfigError` for invalid settings."""
    live = {model.name: settings.catalog.live[model.name] for model in settings.models if model.name in settings.catalog.live}
    for model in settings.models:
        check_options(model)
        if model.group is not None:
            raise ConfigError(f"model {model.name!r}: group has no effect on LangChain models: leave it out")
        if model.api_key_env is not None:
            raise ConfigError(
                f"model {model.name!r}: api_key_env has no effect: LangChain's integrations read their own variable"
            )
    return RemoteBackend(settings, LangChainProvider(live))
