"""The models that stages may run on: provider, id, price, engine. Read from TOML; keys stay in the environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vinelm.catalog.langchain import models_of_chats, models_of_strings
from vinelm.catalog.loading import read_catalog_file, tables_of, toml_tables
from vinelm.catalog.model import Model, Price, entry
from vinelm.catalog.secrets import refuse_secrets
from vinelm.errors import ConfigError

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


@dataclass(frozen=True)
class Catalog(Mapping[str, Model]):
    """Models by name, in the order of the file; ``backends`` holds settings by provider (``[backend.NAME]``).

    ``live`` holds the ready chat models of entries that were made from such: they belong to this process and are never written.
    """

    models: tuple[Model, ...]
    backends: Mapping[str, Mapping[str, Any]]
    live: Mapping[str, Any] = field(compare=False, repr=False)

    def __init__(
        self,
        models: Any,
        backends: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        live: Mapping[str, Any] | None = None,
    ) -> None:
        entries = tuple(models)
        refuse_secrets(entries, backends or {})
        if not entries:
            raise ConfigError("a catalog needs at least one model: add a [[model]] table")
        names = [model.name for model in entries]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"the catalog names {name!r} twice: give each entry a name of its own")
        object.__setattr__(self, "models", entries)
        object.__setattr__(self, "backends", dict(backends or {}))
        object.__setattr__(self, "live", dict(live or {}))
        object.__setattr__(self, "_by_name", dict(zip(names, entries, strict=True)))

    def __getitem__(self, name: str) -> Model:
        by_name: dict[str, Model] = self._by_name  # type: ignore[attr-defined]
        return by_name[name]

    def __iter__(self) -> Iterator[str]:
        return (model.name for model in self.models)

    def __len__(self) -> int:
        return len(self.models)

    def subset(self, names: tuple[str, ...]) -> Catalog:
        """Only these models, in this order; :class:`ConfigError` names one that is missing."""
        for name in names:
            if name not in self:
                raise ConfigError(f"unknown model {name!r}: the catalog has {', '.join(self)}")
        live = {name: self.live[name] for name in names if name in self.live}
        return Catalog([self[name] for name in names], self.backends, live=live)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, read back by :meth:`from_dict`. Holds names of key variables, never keys."""
        return {
            "model": [m.model_dump(mode="json") for m in self.models],
            "backend": {k: dict(v) for k, v in self.backends.items()},
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], *, where: str = "catalog") -> Catalog:
        """A catalog from the tables of a TOML file. :class:`ConfigError` names the entry and the key at fault.

        An entry needs ``name``, ``provider`` and ``model``; its price is an inline table, or ``price_id`` names an entry of the
        bundled price file. A price that is not known is an error.
        """
        models, backends = tables_of(plain, where)
        return cls([entry(item, where) for item in models], backends)

    @classmethod
    def from_toml(cls, path: str | Path) -> Catalog:
        """Read a catalog file. :class:`ConfigError` if it is missing or malformed."""
        return cls.from_dict(toml_tables(path), where=str(path))

    @classmethod
    def from_file(cls, path: str | Path) -> Catalog:
        """Read a catalog file of either kind: our TOML, or a LiteLLM ``model_list`` (``.yaml``, ``.yml``)."""
        read = read_catalog_file(path).checked()
        return cls(read.models, read.backends)

    @classmethod
    def from_strings(cls, specs: Iterable[str], *, prices: Mapping[str, Price | Mapping[str, Any]] | None = None) -> Catalog:
        """LangChain's ``provider:model`` strings, which become the names. Prices: as given here, else of the bundled file.

        OpenAI, Bedrock and Gemini are called by our own clients, others by LangChain's (extra ``langchain`` and the provider's
        package). :class:`ConfigError` names a model whose price is not known.
        """
        return cls(models_of_strings(specs, prices or {}))

    @classmethod
    def from_chat_models(
        cls, chats: Mapping[str, BaseChatModel], *, prices: Mapping[str, Price | Mapping[str, Any]] | None = None
    ) -> Catalog:
        """Ready LangChain chat models by name. Prices: as given here, else of the bundled file, by provider and model.

        The objects stay in this process: a catalog read back from a store or a trie lacks them. :class:`ConfigError` names a
        model whose price is not known.
        """
        return cls(models_of_chats(chats, prices or {}), live=chats)

    @classmethod
    def of(cls, models: Catalog | str | Path | Mapping[str, BaseChatModel] | Iterable[str]) -> Catalog:
        """A catalog of whatever describes one: itself, a file, ready chat models by name, or ``provider:model`` strings."""
        if isinstance(models, Catalog):
            return models
        if isinstance(models, str | Path):
            return cls.from_file(models)
        if isinstance(models, Mapping):
            return cls.from_chat_models(cast("Mapping[str, BaseChatModel]", models))
        return cls.from_strings(models)
