"""Makes the chat models of a catalog, by finding each model's backend and the clock that measures its latency."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from threading import Lock
from types import MappingProxyType
from typing import Any

from langchain_core.language_models import BaseChatModel

from vinelm.backends.several import SeveralObjects, is_alike
from vinelm.catalog import Catalog, Model
from vinelm.clock import Clock, VirtualClock, WallClock
from vinelm.errors import ConfigError, VineLMError
from vinelm.meant import did_you_mean
from vinelm.requests.protocols import Backend, CallContext, PricesCalls, RateLimiter
from vinelm.template.steps import SKIP


class ModelResolver:
    """Makes the chat models of a catalog; a :class:`~vinelm.requests.protocols.ChatModelSource`.

    Args:
        backends: backend by provider; None creates the backends of the catalog's providers on first use.

    Attributes:
        rate_limiters: rate limits by model, if another process applies them.
        equal: finds answers to equal calls. None calls the model every time.
    """

    rate_limiters: Mapping[str, RateLimiter] = MappingProxyType({})
    equal: Any = None

    def __init__(self, models: Catalog, backends: Mapping[str, Backend] | None = None) -> None:
        self.catalog = models
        self._given_backends = backends
        self._found: dict[str, tuple[Backend, Model]] = {}
        self._added: dict[str, BaseChatModel] = {}
        self._adding = Lock()
        self._least_usd: dict[str, float] = {}

    @cached_property
    def backends(self) -> Mapping[str, Backend]:
        """The backend of each provider, by the provider's name."""
        if self._given_backends is not None:
            return self._given_backends
        from vinelm.backends import create_backends

        return create_backends(self.catalog)

    @cached_property
    def is_virtual_time(self) -> bool:
        """Whether calls take no real time: the models' latencies only advance the request's virtual clock. Raises
        :class:`ConfigError` if this differs between models.
        """
        kinds = {self.backend_of(name).is_virtual_time for name in self.catalog}
        if len(kinds) > 1:
            raise ConfigError(
                "the catalog mixes models of virtual and of real time: run simulated models with real_time, or apart"
            )
        return kinds.pop()

    def new_clock(self) -> Clock:
        """Return the clock of a new run: virtual if the models' latencies are simulated, otherwise real."""
        return VirtualClock() if self.is_virtual_time else WallClock()

    def add(self, entry: Model, chat: BaseChatModel) -> None:
        """Add the catalog entry of a chat model that the application made. Thread-safe.

        If the catalog already has an entry of this name, that entry stays. The entry may belong to an earlier chat model
        with other keys or another server, perhaps of another user. Then a :class:`SeveralObjects`, which refuses all calls,
        replaces the earlier chat model, so that no call goes to the wrong object. Calls in flight keep their models.
        """
        with self._adding:
            known = self._added.get(entry.name)
            if known is not None and not isinstance(known, SeveralObjects) and not is_alike(known, chat):
                chat = SeveralObjects(entry=entry.name)
            elif known is not None or entry.name in self.catalog:
                return
            self._added[entry.name] = chat
            others = [one for one in self.catalog.entries if one.name != entry.name]
            kept = self.catalog.entries if len(others) < len(self.catalog.entries) else (*others, entry)
            live = {**self.catalog.live, entry.name: chat}
            self.catalog = Catalog(kept, self.catalog.backends, live=live)
            made = self.__dict__.get("backends")
            if made is not None:
                from vinelm.backends import create_backends

                mine = Catalog([one for one in self.catalog.entries if one.provider == entry.provider], live=live)
                self.__dict__["backends"] = {**made, **create_backends(mine)}
            self._found.clear()

    def backend_of(self, model: str) -> Backend:
        """Return the backend of a catalog entry. Raise :class:`ConfigError` for an unknown model or provider."""
        return self._backend_and_entry(model)[0]

    def chat_model(self, name: str, call: CallContext, limits: Mapping[str, Any] | None = None) -> BaseChatModel:
        """Return a chat model of the catalog for one execution of a step.

        Args:
            name: the model's name in the catalog.
            call: the context of the execution.
            limits: fields of the entry to replace, such as ``max_tokens`` and ``timeout_s``.

        Raises:
            ConfigError: the model or the provider is unknown.
        """
        backend, entry = self._found.get(name) or self._backend_and_entry(name)
        if name in self.rate_limiters:
            call = replace(call, rate_limiter=self.rate_limiters[name])
        if self.equal is not None:
            call = replace(call, equal=self.equal)
        return backend.chat_model(entry.model_copy(update=limits) if limits else entry, call)

    def least_call_usd(self, model: str) -> float:
        """Return the cost in dollars that is reserved for a call of this model with an empty prompt.

        Returns 0 if the backend states no maximum cost, or if ``model`` is ``"skip"``, which skips a stage. Raises
        :class:`ConfigError` for an unknown model or provider.
        """
        found = 0.0 if model == SKIP else self._least_usd.get(model)
        if found is None:
            found, backend = 0.0, self.backend_of(model)
            if isinstance(backend, PricesCalls):
                with suppress(VineLMError):
                    found = backend.upper_bound_usd(self.catalog[model], [])
            self._least_usd[model] = found
        return found

    def _backend_and_entry(self, model: str) -> tuple[Backend, Model]:
        found = self._found.get(model)
        if found is None:
            found = self._found[model] = self._looked_up(model)
        return found

    def _looked_up(self, model: str) -> tuple[Backend, Model]:
        if model not in self.catalog:
            raise ConfigError(
                f"unknown model {model!r}{did_you_mean(model, self.catalog)}: the catalog has {', '.join(self.catalog)}"
            )
        entry = self.catalog[model]
        try:
            return self.backends[entry.provider], entry
        except KeyError:
            known = ", ".join(self.backends) or "none"
            raise ConfigError(f"model {model!r}: no backend for the provider {entry.provider!r}: known are {known}") from None
