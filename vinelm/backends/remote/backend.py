"""The base class of the backends that call a provider's servers, with rate limits, retries and early validation."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from pydantic import ValidationError

from vinelm.backends.base import bound_instance
from vinelm.backends.limits.prompt_admission import AdmitsPrompts, PromptAdmission
from vinelm.backends.limits.rate_limits import EngineRateLimiter, RateLimits
from vinelm.backends.limits.replica_gate import ReplicaGate
from vinelm.backends.remote.batches import UNIT, BatchedSender, BatchedUnit, BatchGate
from vinelm.backends.remote.chat_model import RemoteChatModel, request_of
from vinelm.backends.remote.inner import InnerChat
from vinelm.backends.remote.meter import ModelRequest, bound_of
from vinelm.backends.remote.parked_calls import ParkedUnit
from vinelm.backends.remote.provider import CallBinding, Provider
from vinelm.backends.remote.rehearsal import rehearse
from vinelm.backends.remote.retry import BILLED_ATTEMPTS, SETTINGS, RetryPolicy
from vinelm.backends.remote.sender import ChatSender
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model, ReplicaGroup
from vinelm.catalog.model import entries_of
from vinelm.clock import WallClock
from vinelm.errors import ConfigError
from vinelm.foreign_code import answered
from vinelm.prompts.cache_points import CachePoints, Reuse
from vinelm.requests.protocols import CallContext

BATCHES_KEY = "batches"
PRIORITY_KEY = "send_priority"
PRIORITY_ORDERS = {"highest-first": 1, "lowest-first": -1}
"""For each order of priorities that a server may use, the sign of what is sent: SGLang serves the highest first, vLLM the
lowest."""
SEND_PRIORITY = ("openai", "sglang")
"""Providers whose servers can be sent a priority."""


class RemoteBackend:
    """Creates the chat models of one provider's catalog entries, and applies rate limits and retries to their calls.
    Thread-safe.

    Settings in ``[backend.NAME]``: ``limits`` (per engine: ``requests_per_min``, ``tokens_per_min``, ``concurrency``),
    ``stream`` (true also streams calls that ask for a whole answer, to measure the time to first token; true by default, except
    for objects that the application passes in), ``send_priority`` (if servers accept one), ``batches`` (whether ``api_base``
    offers the provider's batches; default false), ``max_retries``, ``backoff_s`` and ``max_wait_s``. The packages' own retries
    are switched off, because a call that they retry would be paid twice but recorded once.
    """

    is_simulated = False
    is_virtual_time = False

    def __init__(self, settings: ProviderSettings, provider: Provider) -> None:
        api = provider.batches()
        known = [*([PRIORITY_KEY] if settings.provider in SEND_PRIORITY else ()), *([BATCHES_KEY] if api is not None else ())]
        settings.refuse_unknown("limits", "stream", *known, *SETTINGS)
        self.provider = provider
        self._chats: dict[tuple[str, str], InnerChat] = {}
        self._making = threading.Lock()
        self._sender = ChatSender(self.inner)
        if api is not None:
            api.chat_of = lambda model: self.inner(model).sync()
        self.batch_api = api
        """The provider's batches; None without any."""
        self._has_batches = settings.setting(BATCHES_KEY, bool, False)
        self._gate: BatchGate | None = None
        self._models = settings.models
        self._rate_limiters = rate_limiters(settings)
        self._gates = {
            group.engine: ReplicaGate({replica.engine: self._rate_limiters[replica.engine] for replica in group.replicas})
            for group in settings.catalog.models
            if isinstance(group, ReplicaGroup) and group.provider == settings.provider
        }
        self._policy = RetryPolicy.of(settings)
        self._streams = settings.setting("stream", bool, provider.streams)
        self._priority_sign = _priority_sign(settings)
        self._is_checked = False
        reuse = Reuse()
        self._prompts = {
            model.name: PromptAdmission(
                self._limiter_of(model),
                CachePoints(model, takes_marks=provider.marks is not None, reuse=reuse, clock=WallClock()),
            )
            for model in settings.catalog.models
            if model.provider == settings.provider and model.cache_points != "off"
        }

    def _limiter_of(self, model: Model) -> EngineRateLimiter | ReplicaGate:
        return self._gates.get(model.engine) or self._rate_limiters[model.engine]

    @property
    def rate_limiters(self) -> Mapping[str, EngineRateLimiter]:
        """The rate limiter of each engine, by the engine's name. A profiler with worker processes applies them in its main
        process.
        """
        return self._rate_limiters

    @property
    def replica_gates(self) -> Mapping[str, ReplicaGate]:
        """The :class:`ReplicaGate` of each replica group, by the group's name."""
        return self._gates

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """Return a chat model for one execution of a step. Raise :class:`ConfigError` if any of the backend's models cannot be
        called.
        """
        own = call.own if call.own is not None and call.own.entry == model.name else None
        if not (self._is_checked or own):  # before the first paid call, not in the middle of a run
            for entry in self._models:
                self.provider.check(entry)
            self._is_checked = True
        inner = own.inner if own else self.inner(entries_of(model)[0])
        binding = CallBinding(
            provider=self.provider,
            sender=self._sender,
            inner=inner,
            model=model,
            call=call,
            rate_limiter=call.rate_limiter or self._limiter_of(model),
            policy=self._policy,
            streams=self._streams,
            priority_sign=self._priority_sign,
            prompts=self._admission_of(model, call),
            own_limit=own.max_tokens if own else None,
        )
        unit = UNIT.get()
        if self._gate is not None and unit is not None and model.name in self._gate.models:
            binding = self._batched(binding, self._gate, unit)
        return bound_instance(RemoteChatModel, binding, inner.kept)

    def inner(self, entry: Model) -> InnerChat:
        """Return the chat model of an entry. It is made once, and used again for entries with the same name and options.

        Raises :class:`ConfigError` if it cannot be made.
        """
        key = (entry.name, repr(entry.options))
        if (made := self._chats.get(key)) is not None:
            return made
        with self._making:
            found = self._chats.get(key)
            if found is None:
                found = self._chats[key] = self.provider.inner(entry)
                found.entry_max_tokens = next((one.max_tokens for one in self._models if one.name == entry.name), None)
            return found

    def has_batches(self, model: Model) -> bool:
        """Return whether calls of a model can go in batches: the model is served by the provider itself, or the setting
        ``batches`` is true.
        """
        is_its_own = model.api_base is None or self._has_batches
        return self.batch_api is not None and is_its_own and not isinstance(model, ReplicaGroup)

    def through(self, gate: BatchGate) -> Self:
        """Return a copy of the backend for runs at batch prices. It puts their calls into ``gate``, the queue in which calls
        wait for batches.
        """
        twin = copy.copy(self)
        twin._gate = gate
        return twin

    def _batched(self, binding: CallBinding, gate: BatchGate, unit: BatchedUnit) -> CallBinding:
        """Return ``binding`` changed so that its calls go in batches: half the price, one attempt, no rate limit and no time
        limit.

        Args:
            binding: The settings of direct calls.
            gate: The queue of calls that wait for their batches.
            unit: The run that makes the calls.
        """
        assert self.batch_api is not None
        model, batch_api = binding.model, self.batch_api
        price = model.price.in_batches(halves_cache=batch_api.halves_cache)
        sender = BatchedSender(binding.inner, gate, unit, batch_api)

        def chosen(request: ModelRequest) -> CallBinding:
            digest = unit.digest(model, sender.body(request))
            if isinstance(unit, ParkedUnit):
                upper = lambda: bound_of(model, request).usd(price)  # noqa: E731
                if unit.goes_at_once(gate, digest, upper):
                    return binding
            own = BatchedSender(binding.inner, gate, unit, batch_api, digest)
            return replace(batched, sender=own, is_owed=unit.is_bought(gate, digest))

        batched = replace(
            binding,
            sender=sender,
            model=model.model_copy(update={"price": price, "timeout_s": math.inf}),
            rate_limiter=EngineRateLimiter(RateLimits()),
            policy=RetryPolicy(max_retries=0),
            streams=False,
            priority_sign=0,
            prompts=None,
            list_price=model.price,
            chosen=chosen,
        )
        return batched

    def _admission_of(self, model: Model, call: CallContext) -> AdmitsPrompts | None:
        own = self._prompts.get(model.name)
        return own if own is None or call.rate_limiter is None else cast("AdmitsPrompts", call.rate_limiter)

    @property
    def prompt_admissions(self) -> Mapping[str, PromptAdmission]:
        """The :class:`PromptAdmission` of each model whose prompts are cached (``cache_points``), by the model's name.

        With worker processes, the main process keeps these objects and admits the workers' calls.
        """
        return self._prompts

    def preload(self) -> None:
        """Check and create the models' clients in advance, and rehearse their calls; see
        :class:`vinelm.requests.protocols.Preloads`.
        """
        for model in self._models:
            with suppress(ConfigError):  # a model that no stage uses may lack its key: the first call reports it
                self.provider.check(model)
                self.inner(model).sync()
                rehearse(self.inner(model).given)

    def upper_bound_usd(self, model: Model, messages: Sequence[BaseMessage], **options: Any) -> float:
        """Return a call's maximum cost in dollars; see :meth:`vinelm.requests.protocols.PricesCalls.upper_bound_usd`."""
        inner = self.inner(entries_of(model)[0])
        request = request_of(model, inner, messages, None, options, is_streamed=True)
        return BILLED_ATTEMPTS * inner.rate * bound_of(model, request).usd(model.price)

    def context_tokens(self, model: Model) -> int | None:
        """Return the context length in tokens; see :meth:`vinelm.backends.diagnostics.KnowsContext.context_tokens`."""
        return answered(lambda: self.provider.context_tokens(model), None)  # not every server reports it

    def close(self) -> None:
        """Close the connections of synchronous calls."""
        for inner in self._chats.values():
            inner.close()


def _priority_sign(settings: ProviderSettings) -> int:
    order = settings.setting(PRIORITY_KEY, str, "")
    if order and order not in PRIORITY_ORDERS:
        known = " or ".join(f"{name!r}" for name in PRIORITY_ORDERS)
        raise ConfigError(f"[backend.{settings.provider}]: {PRIORITY_KEY} is {order!r}: use {known}")
    return PRIORITY_ORDERS.get(order, 0)


def rate_limiters(settings: ProviderSettings) -> Mapping[str, EngineRateLimiter]:
    """Create one rate limiter per engine of the provider's models, from ``limits = { ENGINE = { ... } }`` in its table.

    Raises:
        ConfigError: An engine has no model, a key is unknown, or a value is out of range.
    """
    engines = tuple(dict.fromkeys(model.engine for model in settings.models))
    given: Mapping[str, Any] = settings.setting("limits", dict, {})
    for engine in given:
        if engine not in engines:
            raise ConfigError(
                f"[backend.{settings.provider}]: limits of engine {engine!r}, which no model has: "
                f"engines are {', '.join(engines)}"
            )
    return {engine: EngineRateLimiter(_limits(settings.provider, engine, given.get(engine, {}))) for engine in engines}


def _limits(provider: str, engine: str, fields: Any) -> RateLimits:
    try:
        return RateLimits.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        wrong = f"unknown key {key!r}" if first["type"] == "extra_forbidden" else f"{key}: {first['msg']}"
        known = ", ".join(RateLimits.model_fields)
        raise ConfigError(f"[backend.{provider}]: limits of engine {engine!r}: {wrong}: known keys are {known}") from error
