"""Reads catalog entries from tables. Unknown keys raise errors, and missing prices are looked up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from vinelm.catalog.model import Model
from vinelm.catalog.prices import FoundPrice, beyond_list_prices, find_price, price_of_id
from vinelm.errors import ConfigError
from vinelm.meant import did_you_mean

_GIVE_A_PRICE = "add price = { input, output, source, as_of } (dollars per million tokens)"


def entry(item: Mapping[str, Any], where: str) -> Model:
    """Return the model that a ``[[model]]`` table describes; ``where`` names the source in error messages.

    Raises :class:`ConfigError`, which names the table and the key, if the table is invalid.

    An entry without a price gets the price of its ``price_id``, or of its provider and model.
    """
    label = f"{where}: model {item.get('name', '?')!r}"
    fields = dict(item)
    if "model" in fields:
        fields["model_id"] = fields.pop("model")
    if "price" not in fields:
        fields |= _looked_up(fields, label)
        options = fields.get("options")
        if isinstance(options, Mapping) and (tier := beyond_list_prices(options)):
            raise ConfigError(f"{label}: service_tier {tier!r} is not billed at the list price: {_GIVE_A_PRICE}")
    fields.setdefault("engine", fields.get("api_base") or fields.get("provider", ""))
    try:
        return Model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        known = ", ".join(("model" if n == "model_id" else n) for n in Model.model_fields)
        # LangChain calls it base_url
        meant = " (did you mean 'api_base'?)" if key == "base_url" else did_you_mean(key, Model.model_fields)
        hint = f"{meant}: known keys are {known}" if first["type"] == "extra_forbidden" else f": {first['msg']}"
        wrong = "unknown key" if first["type"] == "extra_forbidden" else "bad value for"
        raise ConfigError(f"{label}: {wrong} {'model' if key == 'model_id' else key!r}{hint}") from error


def _looked_up(fields: Mapping[str, Any], label: str) -> dict[str, Any]:
    if "price_id" in fields:
        price_id = str(fields["price_id"])
        if price := price_of_id(price_id):
            return {"price": price}
    else:
        price_id = f"{fields.get('provider')}/{fields.get('model_id')}"
        if listed := _listed(fields):
            return {"price": listed.price, "price_id": listed.price_id}
    raise ConfigError(f"{label}: no price known for {price_id!r}: {_GIVE_A_PRICE}")


def _listed(fields: Mapping[str, Any]) -> FoundPrice | None:
    provider, model_id, api_base = (fields.get(key) for key in ("provider", "model_id", "api_base"))
    if provider == "langchain":
        provider, _, model_id = str(model_id).partition(":")
    if not isinstance(provider, str) or not isinstance(model_id, str) or not isinstance(api_base, str | None):
        return None  # validation reports this
    return find_price(provider, model_id, api_base)
