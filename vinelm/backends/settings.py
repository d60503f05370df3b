"""What a provider's module is given to make its backend from. One file per provider, each with ``create(setup)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vinelm.catalog import Catalog, Model
from vinelm.errors import ConfigError
from vinelm.workflow import Workflow

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ProviderSettings:
    """Everything that a provider may need. ``settings`` is its ``[backend.NAME]`` table, empty where there is none.

    ``catalog`` is the whole catalog, other providers' models included.
    """

    provider: str
    catalog: Catalog
    workflow: Workflow | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    real_time: bool = False

    @property
    def models(self) -> tuple[Model, ...]:
        """The catalog's models that this provider serves."""
        return tuple(model for model in self.catalog.models if model.provider == self.provider)

    def refuse_unknown(self, *known: str) -> None:
        """:class:`ConfigError` if the settings have a key that is not among ``known``."""
        for key in self.settings:
            if key not in known:
                raise ConfigError(f"[backend.{self.provider}]: unknown key {key!r}: known keys are {', '.join(known)}")

    def setting(self, key: str, kind: type[T], default: T) -> T:
        """The setting, or the default; :class:`ConfigError` if it is of another type."""
        value = self.settings.get(key, default)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ConfigError(f"[backend.{self.provider}]: {key} is {value!r}: expected {kind.__name__}")
        return value


def model_options(model: Model, *known: str) -> Mapping[str, Any]:
    """The model's options; :class:`ConfigError` names one that its provider does not have."""
    for key in model.options:
        if key not in known:
            raise ConfigError(
                f"model {model.name!r}: unknown option {key!r}: {model.provider} models take {', '.join(known) or 'no options'}"
            )
    return model.options
