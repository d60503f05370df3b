"""The models that stages may run on: provider, id, price, engine. Read from TOML; keys stay in the environment."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vinelm.errors import ConfigError

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


class Price(BaseModel):
    """Dollars per million tokens, with where the figure comes from and the day it was read.

    ``cached`` is the price of input tokens read from a prompt cache; None means they cost as much as others. ``call`` is
    dollars per call on top, for services priced that way.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    call: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    source: str
    as_of: date

    def cost_usd(self, tokens_in: int, tokens_out: int, tokens_cached: int = 0) -> float:
        """Dollars of one call; ``tokens_cached`` is a part of ``tokens_in``."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(tokens_in - tokens_cached, 0)
        return self.call + (fresh * self.input + tokens_cached * cached + tokens_out * self.output) / 1e6


class Model(BaseModel):
    """One entry of the catalog. The same model on two endpoints is two entries (§4.5).

    ``name`` is how templates, tries and plans call it; ``model_id`` is what its provider calls it. ``engine`` names the
    endpoint whose load it shares. ``api_key_env`` names the environment variable that holds the key; the key itself is
    never kept: a secret in ``options`` is refused by the catalog. ``options`` goes to the provider's client as it is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    name: str = Field(min_length=1)
    provider: str = Field(min_length=1)
    model_id: str = Field(min_length=1)
    price: Price
    price_id: str | None = None
    engine: str = Field(min_length=1)
    api_base: str | None = None
    api_key_env: str | None = None
    max_tokens: int = Field(default=1024, ge=1)
    timeout_s: float = Field(default=120.0, gt=0)
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def prompt_cache(self) -> tuple[str, str]:
        """Whose prompt cache its calls meet: a cached prefix serves the same model on the same engine, nothing else."""
        return self.engine, self.model_id


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
        _refuse_secrets(entries, backends or {})
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
        from vinelm.catalog.loading import read_catalog_file

        return read_catalog_file(path).catalog()

    @classmethod
    def from_strings(cls, specs: Iterable[str], *, prices: Mapping[str, Price | Mapping[str, Any]] | None = None) -> Catalog:
        """LangChain's ``provider:model`` strings, which become the names. Prices: as given here, else of the bundled file.

        OpenAI, Bedrock and Gemini are called by our own clients, others by LangChain's (extra ``langchain`` and the provider's
        package). :class:`ConfigError` names a model whose price is not known.
        """
        from vinelm.catalog.langchain import models_of_strings

        return cls(models_of_strings(specs, prices or {}))

    @classmethod
    def from_chat_models(
        cls, chats: Mapping[str, BaseChatModel], *, prices: Mapping[str, Price | Mapping[str, Any]] | None = None
    ) -> Catalog:
        """Ready LangChain chat models by name. Prices: as given here, else of the bundled file, by provider and model.

        The objects stay in this process: a catalog read back from a store or a trie lacks them. :class:`ConfigError` names a
        model whose price is not known.
        """
        from vinelm.catalog.langchain import models_of_chats

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


def catalog_text(path: str | Path) -> str:
    """A catalog file's text; :class:`ConfigError` if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot read the catalog: {error}") from error


def toml_tables(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file; :class:`ConfigError` if it is missing or malformed."""
    try:
        return tomllib.loads(catalog_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def tables_of(plain: Mapping[str, Any], where: str) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Mapping[str, Any]]]:
    """The ``[[model]]`` and the ``[backend.NAME]`` tables of a catalog; :class:`ConfigError` if they are none, or not all."""
    for key in plain:
        if key not in ("model", "backend"):
            raise ConfigError(f"{where}: unknown key {key!r}: use [[model]] and [backend.NAME]")
    models, backends = plain.get("model", []), plain.get("backend", {})
    if not isinstance(models, list | tuple) or not all(isinstance(item, Mapping) for item in models):
        raise ConfigError(f"{where}: 'model' is no list of tables: head each model with [[model]]")
    if not isinstance(backends, Mapping) or not all(isinstance(item, Mapping) for item in backends.values()):
        raise ConfigError(f"{where}: 'backend' holds something else than tables: head each provider's with [backend.NAME]")
    if not models:
        raise ConfigError(f"{where}: a catalog needs at least one model: add a [[model]] table")
    return models, backends


def entry(item: Mapping[str, Any], where: str) -> Model:
    """One ``[[model]]`` table as a model; :class:`ConfigError` names the table and the key at fault."""
    label = f"{where}: model {item.get('name', '?')!r}"
    fields = dict(item)
    if "model" in fields:
        fields["model_id"] = fields.pop("model")
    if "price" not in fields and "price_id" in fields:
        price_id = fields["price_id"]
        try:
            fields["price"] = bundled_prices()[str(price_id)]
        except KeyError:
            raise ConfigError(
                f"{label}: no price known for {price_id!r}: add price = {{ input, output, source, as_of }}"
            ) from None
    if "price" not in fields:
        raise ConfigError(f"{label}: no price: add price = {{ input, output, source, as_of }} or a price_id of the price file")
    fields.setdefault("engine", fields.get("api_base") or fields.get("provider", ""))
    try:
        return Model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        known = ", ".join(("model" if n == "model_id" else n) for n in Model.model_fields)
        hint = f": known keys are {known}" if first["type"] == "extra_forbidden" else f": {first['msg']}"
        wrong = "unknown key" if first["type"] == "extra_forbidden" else "bad value for"
        raise ConfigError(f"{label}: {wrong} {'model' if key == 'model_id' else key!r}{hint}") from error


_SECRET_KEY = re.compile(
    r"(^|_)((api|access|secret|private|auth|account|subscription)_?key"
    r"|secret|password|passwd|passphrase|authorization|credentials?|bearer|cookie|token)(_id)?$"
)
_NO_SECRET = re.compile(r"(^|_)(bos|eos|pad|unk|sep|stop|end|mask)_token(_id)?$|_env$")
_URL_WITH_PASSWORD = re.compile(r"^[a-z][a-z0-9+.-]*://[^/\s]*:[^/\s]*@", re.IGNORECASE)


def _refuse_secrets(models: tuple[Model, ...], backends: Mapping[str, Mapping[str, Any]]) -> None:
    """A catalog is kept in stores and tries as it is, so that no key may be in it: :class:`ConfigError`, without the value."""
    places: list[tuple[str, Any]] = [(f"model {model.name!r}: options", model.options) for model in models]
    places += [(f"model {model.name!r}: api_base", model.api_base) for model in models]
    places += [(f"[backend.{name}]", settings) for name, settings in backends.items()]
    for where, value in places:
        found = _secret_in(value)
        if found is not None:
            raise ConfigError(
                f"{where}: {found or 'the URL'} holds a secret, and a catalog is kept on disk: "
                "put it into an environment variable and name that in api_key_env"
            )


def _secret_in(value: Any) -> str | None:
    """The key that holds a secret, in quotes; empty where it is the value alone that shows it; None if there is none."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            name = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(key)).lower())
            if _SECRET_KEY.search(name) and not _NO_SECRET.search(name) and not isinstance(inner, bool | None):
                return repr(str(key))
            found = _secret_in(inner)
            if found is not None:
                return found or repr(str(key))
    elif isinstance(value, list | tuple):
        return next((found for found in map(_secret_in, value) if found is not None), None)
    elif isinstance(value, str) and (_URL_WITH_PASSWORD.search(value) or value.startswith(("Bearer ", "Basic "))):
        return ""
    return None


@cache
def bundled_prices() -> Mapping[str, Price]:
    """The dated price file of the package (``vinelm/prices.toml``): id to price."""
    plain = tomllib.loads((resources.files("vinelm") / "prices.toml").read_text(encoding="utf-8"))
    return {price_id: Price.model_validate(fields) for price_id, fields in plain["price"].items()}
