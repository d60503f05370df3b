"""What the backends of all remote providers share: limits, retries, keys that are looked at before the first dollar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from vinelm.backends.remote.chat_model import RemoteChatModel
from vinelm.backends.remote.rate_limits import EngineRateLimiter, gates
from vinelm.backends.remote.retry import SETTINGS, RetryPolicy
from vinelm.backends.remote.transport import CallBinding, Transport
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import ConfigError
from vinelm.protocols import CallContext

W = TypeVar("W", bound=Transport)


class RemoteBackend(Generic[W]):
    """Chat models over one provider's wire. Thread-safe.

    Settings: ``limits`` (per engine: ``requests_per_min``, ``tokens_per_min``, ``concurrency``), ``stream`` (default true:
    whole answers are streamed too, for their time to first token), ``max_retries``, ``backoff_s``, ``max_wait_s``. The SDKs'
    own retries are off: they would hide in the latency. :class:`ConfigError` names what does not fit.
    """

    is_simulated = False
    is_virtual_time = False

    def __init__(self, setup: ProviderSettings, wire: W) -> None:
        setup.refuse_unknown("limits", "stream", *SETTINGS)
        self.wire = wire
        self._models = setup.models
        self._gates = gates(setup)
        self._policy = RetryPolicy.of(setup)
        self._streams = setup.setting("stream", bool, True)
        self._is_checked = False

    @property
    def gates(self) -> Mapping[str, EngineRateLimiter]:
        """The limits of its engines, by engine: whoever runs units in processes of their own holds the calls back here."""
        return self._gates

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """A chat model for one invocation. :class:`ConfigError` if any of the backend's models cannot be called."""
        if not self._is_checked:  # before the first dollar, not in the middle of a run
            for entry in self._models:
                self.wire.check(entry)
            self._is_checked = True
        return RemoteChatModel.bound(
            CallBinding(
                wire=self.wire,
                model=model,
                call=call,
                gate=call.gate or self._gates[model.engine],
                policy=self._policy,
                streams=self._streams,
            )
        )

    def upper_bound_usd(self, model: Model, messages: Sequence[BaseMessage], **options: Any) -> float:
        """See :class:`vinelm.protocols.PricesCalls`."""
        return self.wire.upper_bound_usd(model, self.wire.request(model, messages, options, is_streamed=True).body)

    def close(self) -> None:
        """Close the connections of synchronous calls."""
        self.wire.close()


def check_base(model: Model, hint: str = "it must start with http:// or https://") -> None:
    """:class:`ConfigError` for an ``api_base`` that is no URL."""
    if model.api_base is not None and not model.api_base.startswith(("http://", "https://")):
        raise ConfigError(f"model {model.name!r}: api_base is {model.api_base!r}: {hint}")
