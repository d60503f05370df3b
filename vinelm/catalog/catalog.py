"""Model catalogs, from TOML, a LiteLLM config or LangChain models. API keys stay in the environment."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vinelm.catalog.entries import entry
from vinelm.catalog.environment import take_variables
from vinelm.catalog.langchain import models_of_chats, models_of_strings
from vinelm.catalog.loading import read_catalog_file, tables_of
from vinelm.catalog.model import SKIPPED, Model, Price, all_entries, grouped
from vinelm.catalog.prices import old_price_note
from vinelm.catalog.secrets import refuse_secrets
from vinelm.errors import ConfigError
from vinelm.meant import did_you_mean
from vinelm.template.steps import SKIP

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


_HARMLESS = ("simulated",)
"""Providers whose models call no server and read no file."""
_WHERE = ("api_base", "api_key_env")


@dataclass(frozen=True)
class Catalog(Mapping[str, Model]):
    """The models that may be chosen: a mapping from name to :class:`Model`, in the order of the file.

    The name ``"skip"`` can also be looked up, but is not listed: it stands for skipping an optional stage, at no cost.

    Entries with the same ``group`` count as one model, a :class:`~vinelm.catalog.ReplicaGroup` with the group's name.

    Args:
        models: The entries; at least one, with unique names. The attribute ``models`` has the same entries, but one
            :class:`~vinelm.catalog.ReplicaGroup` in place of the entries of each group.
        backends: Settings by provider (``[backend.NAME]`` in a file).
        live: The chat models, by entry name, of entries that :meth:`from_chat_models` made. They belong to this process and are
            never written.
        is_embedded: Whether the catalog was read from a trie or a store; see :meth:`embedded`.

    Raises:
        ConfigError: There is no entry, a name repeats, the entries of a group do not fit together, or an entry or a setting
            contains a secret.
    """

    models: tuple[Model, ...]
    backends: Mapping[str, Mapping[str, Any]]
    live: Mapping[str, Any] = field(compare=False, repr=False)
    is_embedded: bool = field(compare=False, repr=False)

    def __init__(
        self,
        models: Any,
        backends: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        live: Mapping[str, Any] | None = None,
        is_embedded: bool = False,
    ) -> None:
        entries = all_entries(models)
        refuse_secrets(entries, backends or {})
        if not entries:
            raise ConfigError("a catalog needs at least one model: add a [[model]] table")
        names = [model.name for model in entries]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"the catalog names {name!r} twice: give each entry a name of its own")
        choices = grouped(entries)
        if SKIP in (*names, *(model.name for model in choices)):
            raise ConfigError(f"the catalog names a model {SKIP!r}, the word for leaving a stage out: give it another name")
        object.__setattr__(self, "models", choices)
        object.__setattr__(self, "backends", dict(backends or {}))
        object.__setattr__(self, "live", dict(live or {}))
        object.__setattr__(self, "is_embedded", is_embedded)
        object.__setattr__(self, "_by_name", {SKIP: SKIPPED} | {model.name: model for model in choices})

    def __deepcopy__(self, memo: Any) -> Catalog:
        """Return this object itself instead of a copy: it is immutable, and its chat models have clients and locks that cannot
        be copied.
        """
        return self

    def __getitem__(self, name: str) -> Model:
        by_name: dict[str, Model] = self._by_name  # type: ignore[attr-defined]
        return by_name[name]

    def __iter__(self) -> Iterator[str]:
        return (model.name for model in self.models)

    def __len__(self) -> int:
        return len(self.models)

    @property
    def entries(self) -> tuple[Model, ...]:
        """All entries, including each replica of a group."""
        return all_entries(self.models)

    def subset(self, names: tuple[str, ...]) -> Catalog:
        """Return a catalog of only these models, in this order; raise :class:`ConfigError` if one of them is missing."""
        for name in names:
            if name not in self:
                raise ConfigError(f"unknown model {name!r}{did_you_mean(name, self)}: the catalog has {', '.join(self)}")
        live = {name: self.live[name] for name in names if name in self.live}
        chosen = [self[name] for name in names if name != SKIP]
        return Catalog(chosen, self.backends, live=live, is_embedded=self.is_embedded)

    def require_own(self) -> None:
        """Raise :class:`ConfigError` if the catalog came with a trie or a store, and so must not be used for calls.

        Such a file may come from anyone, and its author must not decide which server gets the prompts and the API key.
        Simulated models are allowed, since they call no server.
        """
        named = [model.name for model in self.models if model.provider not in _HARMLESS] if self.is_embedded else []
        if named:
            more = f" and {len(named) - 3} more" if len(named) > 3 else ""
            raise ConfigError(
                f"a trie or a store, which may be anybody's, does not say where calls go ({', '.join(named[:3])}{more}): give "
                "models, your own catalog with their addresses and the names of their keys",
                code="embedded-catalog",
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the catalog as plain JSON types, which :meth:`from_dict` reads. It contains names of API key variables, but no
        key.
        """
        return {
            "model": [m.model_dump(mode="json") for m in self.entries],
            "backend": {k: dict(v) for k, v in self.backends.items()},
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], *, where: str = "catalog") -> Catalog:
        """Return the catalog that these tables of a TOML file describe.

        Args:
            plain: ``model``, a list of tables, and optionally ``backend``, a table by provider. An entry needs ``name``,
                ``provider`` and ``model``, and ``price``, a ``price_id``, or a model whose list price is known.
            where: The name of the source in error messages.

        Raises:
            ConfigError: An entry has an invalid key or no known price; the message names it.
        """
        models, backends = tables_of(plain, where)
        return cls([entry(item, where) for item in models], backends)

    @classmethod
    def embedded(cls, plain: Mapping[str, Any], *, where: str) -> Catalog:
        """Return the catalog stored in a trie or store, without the settings that decide which server is called.

        Plans and reports need the models, prices and engines. Addresses, key variables, options and provider settings are left
        out, except for simulated models, and :meth:`require_own` refuses calls with this catalog.

        Args:
            plain: The stored catalog, see :meth:`from_dict`.
            where: The name of the source in error messages.
        """
        models, backends = tables_of(plain, where)
        kept = {name: table for name, table in backends.items() if name in _HARMLESS}
        return cls([entry(_harmless(item), where) for item in models], kept, is_embedded=True)

    @classmethod
    def from_file(cls, path: str | Path) -> Catalog:
        """Read a catalog from a TOML file, or from a LiteLLM config with a ``model_list`` (``.yaml``, ``.yml``).

        Logs a warning for prices older than 90 days, and for parts of a LiteLLM config that have no effect or cannot be used.
        Raises :class:`ConfigError` if the file cannot be read.
        """
        read = read_catalog_file(path).checked()
        return cls(read.models, read.backends)

    @classmethod
    def from_strings(cls, specs: Iterable[str], *, prices: Mapping[str, Price | Mapping[str, Any]] | None = None) -> Catalog:
        """Return a catalog of models given as LangChain's ``provider:model`` strings, which become the models' names.

        OpenAI, Anthropic, Bedrock and Gemini are called by VineLM's own clients; other providers need the extra ``langchain``
        and the provider's LangChain package.

        Args:
            specs: For example ``"openai:gpt-4.1-mini"``.
            prices: Prices by string, which replace list prices.

        Raises:
            ConfigError: A string is malformed, or the price of a model is not known.
        """
        take_variables()
        return cls(_with_warning(models_of_strings(specs, prices or {})))

    @classmethod
    def from_chat_models(
        cls, chats: Mapping[str, BaseChatModel], *, prices: Mapping[str, Price | Mapping[str, Any]] | None = None
    ) -> Catalog:
        """Return a catalog of ready LangChain chat models.

        The objects stay in this process: a catalog that is read from a store or a trie does not have them.

        Args:
            chats: Chat models by name.
            prices: Prices by name, which replace list prices.

        Raises:
            ConfigError: A value is not a chat model, or the price of a model is not known.
        """
        return cls(_with_warning(models_of_chats(chats, prices or {})), live=chats)

    @classmethod
    def of(cls, models: Catalog | str | Path | Mapping[str, BaseChatModel] | Iterable[str]) -> Catalog:
        """Return ``models`` as a catalog: ``models`` is a catalog, the path of a file, chat models by name, or
        ``provider:model`` strings.
        """
        if isinstance(models, Catalog):
            return models
        if isinstance(models, str | Path):
            return cls.from_file(models)
        if isinstance(models, Mapping):
            return cls.from_chat_models(cast("Mapping[str, BaseChatModel]", models))
        return cls.from_strings(models)


def _harmless(item: Mapping[str, Any]) -> dict[str, Any]:
    dropped = _WHERE if item.get("provider") in _HARMLESS else (*_WHERE, "options")
    # Without a price here, one would be looked up by the address.
    return {key: value for key, value in item.items() if key not in dropped}


def _with_warning(models: list[Model]) -> list[Model]:
    """Return the models unchanged, after logging a warning if some prices are old."""
    if (note := old_price_note(models, date.today())) is not None:
        logging.getLogger(__name__).warning("catalog: %s", note)
    return models
