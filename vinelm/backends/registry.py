"""Lists the known providers, and creates the backends of a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from vinelm.backends.limits.prompt_admission import KeepsPrompts, PromptAdmission
from vinelm.backends.limits.rate_limits import EngineRateLimiter, LimitsCalls
from vinelm.backends.limits.replica_gate import LimitsGroups, ReplicaGate
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Catalog, Model, ReplicaGroup
from vinelm.catalog.billed_settings import dearer_in, settings_of
from vinelm.catalog.prices import has_list_price
from vinelm.errors import ConfigError
from vinelm.meant import did_you_mean
from vinelm.requests.protocols import Backend
from vinelm.requests.workflow import Workflow

PROVIDERS: Mapping[str, str] = MappingProxyType(
    {
        "anthropic": "vinelm.backends.anthropic.provider:create",
        "azure": "vinelm.backends.openai.provider:create_azure",
        "bedrock": "vinelm.backends.bedrock.provider:create",
        "gemini": "vinelm.backends.gemini.provider:create",
        "langchain": "vinelm.backends.langchain.provider:create",
        "openai": "vinelm.backends.openai.provider:create",
        "recorded": "vinelm.backends.offline.recorded:create",
        "sglang": "vinelm.backends.sglang.provider:create",
        "simulated": "vinelm.backends.offline.simulated:create",
        "vertex": "vinelm.backends.gemini.provider:create_vertex",
    }
)
"""Maps a provider to the function that makes its backend. Imported on first use: SDKs load slowly."""


CACHE_POINTS = ("anthropic", "bedrock", "openai", "azure")
"""Providers whose prompt caches a request can influence."""


def create_backends(
    catalog: Catalog, *, workflow: Workflow | None = None, seed: int = 0, real_time: bool = False
) -> dict[str, Backend]:
    """Create one backend per provider of the catalog, in the catalog's order. Makes no call.

    Args:
        catalog: The models, and the ``[backend.NAME]`` tables of their providers.
        workflow: The workflow whose requests the offline backends answer.
        seed: Determines simulated answers, unless the backend's table sets a seed.
        real_time: Whether calls of offline backends really take their latency, unless the backend's table sets this.

    Raises:
        ConfigError: A provider or setting is unknown, the provider of a backend's table has no model in the catalog, or the
            catalog was read from a trie or a store although some of its models call a server.
    """
    catalog.require_own()
    used = tuple(dict.fromkeys(model.provider for model in catalog.models))
    for model in catalog.models:
        if model.provider not in PROVIDERS:
            raise ConfigError(
                f"model {model.name!r}: unknown provider {model.provider!r}{did_you_mean(model.provider, PROVIDERS)}: "
                f"known are {', '.join(PROVIDERS)}"
            )
        if model.cache_points != "off":
            _check_cache_points(model)
        _check_tier(model, catalog.live.get(model.name))
    for name in catalog.backends:
        if name not in PROVIDERS:
            raise ConfigError(
                f"[backend.{name}]: unknown provider {name!r}{did_you_mean(name, PROVIDERS)}: known are {', '.join(PROVIDERS)}"
            )
        if name not in used:
            raise ConfigError(f"[backend.{name}] has no effect: no model of the catalog has provider = {name!r}")
    return {provider: _create(provider, catalog, workflow, seed, real_time) for provider in used}


def _check_cache_points(model: Model) -> None:
    price = model.price
    if model.provider not in CACHE_POINTS:
        why = f"provider {model.provider!r} takes no cache marks, as {', '.join(CACHE_POINTS)} do"
    elif price.cached is None or price.cached >= price.input:
        why = "its price says that nothing is saved: give what reading costs, cached = ..."
    else:
        return
    raise ConfigError(f"model {model.name!r}: cache_points = {model.cache_points!r} has no effect: {why}")


def _check_tier(model: Model, live: Any) -> None:
    """Raise :class:`ConfigError` if a model has a list price, but its settings request a more expensive service.

    Otherwise calls would be recorded at less than they cost. A model whose price is stated in the catalog is not checked.
    ``live`` is the application's own chat model object for this model; None without one.
    """
    if not has_list_price(model):
        return
    for settings in (model.options, {} if live is None else settings_of(live)):
        if (found := dearer_in(settings)) is not None:
            raise ConfigError(
                f"model {model.name!r}: {found[0]} = {found[1]!r} costs more than the list price: give the entry a price of "
                "its own, price = { input, output, source, as_of }"
            )


def _create(provider: str, catalog: Catalog, workflow: Workflow | None, seed: int, real_time: bool) -> Backend:
    settings = ProviderSettings(
        provider=provider,
        catalog=catalog,
        workflow=workflow,
        table=catalog.backends.get(provider, {}),
        seed=seed,
        real_time=real_time,
    )
    module, _, function = PROVIDERS[provider].partition(":")
    backend: Backend = getattr(import_module(module), function)(settings)
    return backend


def rate_limiters_of(catalog: Catalog, backends: Mapping[str, Backend]) -> dict[str, EngineRateLimiter | ReplicaGate]:
    """Return the rate limiter of each model that has limits, by the model's name.

    Models on one engine share a limiter. For a replica group, the limiter is the group's :class:`ReplicaGate`.
    """
    found: dict[str, EngineRateLimiter | ReplicaGate] = {}
    for model in catalog.models:
        backend = backends.get(model.provider)
        if not isinstance(backend, LimitsCalls):
            continue
        limiter: EngineRateLimiter | ReplicaGate | None = backend.rate_limiters.get(model.engine)
        if isinstance(model, ReplicaGroup) and isinstance(backend, LimitsGroups):
            limiter = backend.replica_gates[model.engine]
        if limiter is not None and limiter.is_limited:
            found[model.name] = limiter
    return found


def prompt_admissions_of(backends: Mapping[str, Backend]) -> dict[str, PromptAdmission]:
    """Return the :class:`PromptAdmission` of each model whose prompts are cached (``cache_points``), by the model's name."""
    keeping = [one for one in backends.values() if isinstance(one, KeepsPrompts)]
    return {name: admission for one in keeping for name, admission in one.prompt_admissions.items()}


def replica_gates_of(backends: Mapping[str, Backend]) -> list[ReplicaGate]:
    """Return the :class:`ReplicaGate` of each replica group of these backends."""
    return [gate for one in backends.values() if isinstance(one, LimitsGroups) for gate in one.replica_gates.values()]


def engine_limiters_of(catalog: Catalog, backends: Mapping[str, Backend]) -> dict[str, EngineRateLimiter]:
    """Return the rate limiter of each engine that has limits, by ``PROVIDER:ENGINE``. A replica group has one for each of its
    replicas' engines.
    """
    found: dict[str, EngineRateLimiter] = {}
    for entry in catalog.entries:
        backend = backends.get(entry.provider)
        limiter = backend.rate_limiters.get(entry.engine) if isinstance(backend, LimitsCalls) else None
        if limiter is not None and limiter.is_limited:
            found[f"{entry.provider}:{entry.engine}"] = limiter
    return found
