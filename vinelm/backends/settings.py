"""The settings from which a provider's module creates its backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vinelm.catalog import Catalog, Model
from vinelm.errors import ConfigError
from vinelm.meant import did_you_mean
from vinelm.requests.workflow import Workflow

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ProviderSettings:
    """Input of a provider's ``create(settings)``.

    Attributes:
        provider: The provider's name.
        catalog: The whole catalog, including models of other providers.
        workflow: The workflow whose requests offline backends answer; None without a workflow.
        table: The provider's ``[backend.NAME]`` table.
        seed: Default seed of simulated answers.
        real_time: Whether offline calls really take their latency, by default.
    """

    provider: str
    catalog: Catalog
    workflow: Workflow | None = None
    table: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    real_time: bool = False

    @property
    def models(self) -> tuple[Model, ...]:
        """The catalog's entries of this provider, including each replica of a group."""
        return tuple(model for model in self.catalog.entries if model.provider == self.provider)

    def refuse_unknown(self, *known: str) -> None:
        """Raise :class:`ConfigError` if the table has a key that is not among ``known``."""
        for key in self.table:
            if key not in known:
                raise ConfigError(
                    f"[backend.{self.provider}]: unknown key {key!r}{did_you_mean(key, known)}: "
                    f"known keys are {', '.join(known)}"
                )

    def setting(self, key: str, kind: type[T], default: T) -> T:
        """Return a setting of the table, or the default. Raise :class:`ConfigError` if the setting has another type."""
        value = self.table.get(key, default)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ConfigError(f"[backend.{self.provider}]: {key} is {value!r}: expected {kind.__name__}")
        return value
