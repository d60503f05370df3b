"""Catalog entries: one model with its price."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vinelm.errors import ConfigError


class Price(BaseModel):
    """The price of a model in dollars per million tokens.

    Args:
        input: Dollars per million prompt tokens, >= 0.
        output: Dollars per million completion tokens, >= 0.
        cached: Dollars per million prompt tokens that are read from a prompt cache; None charges them as ``input``.
        call: Dollars per call, added to those of the tokens.
        source: Where the figures come from.
        as_of: The day on which they were read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    call: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    source: str
    as_of: date

    def cost_usd(self, tokens_in: int, tokens_out: int, tokens_cached: int = 0) -> float:
        """Return the dollars of one call. ``tokens_cached`` is the part of ``tokens_in`` that was read from a prompt cache."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(tokens_in - tokens_cached, 0)
        return self.call + (fresh * self.input + tokens_cached * cached + tokens_out * self.output) / 1e6


class Model(BaseModel):
    """One entry of a catalog. The same model on two endpoints is two entries (VineLM paper §4.5).

    Args:
        name: The name in templates, tries and plans; unique in its catalog.
        provider: The backend that calls it.
        model_id: The provider's name of the model.
        price: Its price.
        price_id: The entry of the bundled price file that ``price`` was taken from; None if it was given.
        engine: The endpoint whose load it shares with other entries.
        api_base: The URL of the endpoint; None takes the provider's default.
        api_key_env: The environment variable of the API key. The key itself is never stored.
        max_tokens: The most completion tokens of one call, >= 1.
        timeout_s: Seconds after which an attempt is given up, > 0.
        options: Passed to the provider's client as they are. A catalog refuses secrets in them.
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
        """The key of the prompt cache that its calls share: a cached prefix serves only the same model on the same engine."""
        return self.engine, self.model_id


@cache
def bundled_prices() -> Mapping[str, Price]:
    """Return the dated price file of the package (``vinelm/prices.toml``), id to price."""
    plain = tomllib.loads((resources.files("vinelm") / "prices.toml").read_text(encoding="utf-8"))
    return {price_id: Price.model_validate(fields) for price_id, fields in plain["price"].items()}


def entry(item: Mapping[str, Any], where: str) -> Model:
    """Return the model that a ``[[model]]`` table describes; :class:`ConfigError` names the table and the key at fault."""
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
