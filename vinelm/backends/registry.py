"""Providers by name, and the backends that a catalog needs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from vinelm.backends.remote.rate_limits import EngineRateLimiter, RateLimits
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.protocols import Backend
from vinelm.workflow import Workflow

PROVIDERS: Mapping[str, str] = MappingProxyType(
    {
        "azure": "vinelm.backends.openai.azure",
        "bedrock": "vinelm.backends.bedrock.backend",
        "gemini": "vinelm.backends.gemini.backend",
        "langchain": "vinelm.backends.langchain.backend",
        "openai": "vinelm.backends.openai.backend",
        "recorded": "vinelm.backends.offline.recorded",
        "sglang": "vinelm.backends.sglang.backend",
        "simulated": "vinelm.backends.offline.simulated",
        "vertex": "vinelm.backends.gemini.vertex",
    }
)
"""Provider to the module that has its ``create(setup: Setup) -> Backend``. Imported on first use: SDKs load slowly."""


def create_backends(
    catalog: Catalog, *, workflow: Workflow | None = None, seed: int = 0, real_time: bool = False
) -> dict[str, Backend]:
    """One backend per provider that the catalog uses, in the catalog's order. Makes no call and spends nothing.

    ``seed`` and ``real_time`` hold for offline backends unless their ``[backend.NAME]`` table says otherwise.
    :class:`ConfigError` names a provider that is unknown, a table that no model uses, an unknown or malformed setting.
    """
    used = tuple(dict.fromkeys(model.provider for model in catalog.models))
    for model in catalog.models:
        if model.provider not in PROVIDERS:
            raise ConfigError(f"model {model.name!r}: unknown provider {model.provider!r}: known are {', '.join(PROVIDERS)}")
    for name in catalog.backends:
        if name not in PROVIDERS:
            raise ConfigError(f"[backend.{name}]: unknown provider {name!r}: known are {', '.join(PROVIDERS)}")
        if name not in used:
            raise ConfigError(f"[backend.{name}] has no effect: no model of the catalog has provider = {name!r}")
    return {provider: _create(provider, catalog, workflow, seed, real_time) for provider in used}


def _create(provider: str, catalog: Catalog, workflow: Workflow | None, seed: int, real_time: bool) -> Backend:
    setup = ProviderSettings(
        provider=provider,
        catalog=catalog,
        workflow=workflow,
        settings=catalog.backends.get(provider, {}),
        seed=seed,
        real_time=real_time,
    )
    backend: Backend = import_module(PROVIDERS[provider]).create(setup)
    return backend


def gates_of(catalog: Catalog, backends: Mapping[str, Backend]) -> dict[str, EngineRateLimiter]:
    """By model, the limits that its backend holds its calls to; models without any are left out. Models on one engine share
    one.
    """
    found: dict[str, EngineRateLimiter] = {}
    for model in catalog.models:
        gates: Mapping[str, EngineRateLimiter] = getattr(backends.get(model.provider), "gates", {})
        gate = gates.get(model.engine)
        if gate is not None and gate.limits != RateLimits():
            found[model.name] = gate
    return found
