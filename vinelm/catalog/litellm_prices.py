"""The price of a LiteLLM entry: its own figures, else the list price of its model, else that of a server of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from vinelm.catalog.litellm_keys import PRICES
from vinelm.catalog.litellm_routes import ROUTES, Called, is_private
from vinelm.catalog.model import Price
from vinelm.catalog.prices import FoundPrice, find_price
from vinelm.errors import ConfigError

_OUR_RATES = ("input", "output", "cached", "cache_write")
_ANY_SERVER = ("openai", "openai_like", "custom_openai")
"""Prefixes that name a protocol: the address says whose the server is."""
OWN_SERVER = "no bill: a server of your own"
FREE = "free of charge: OpenRouter's :free models"
ASSUMED = "assumed from the name: "


class Priced(NamedTuple):
    """The keys to an entry's price: the called model, the address, and the file's own statement.

    ``has_no_key``: the file gives a placeholder for the key, as people do for servers that know no accounts.
    """

    called: Called
    api_base: str | None
    has_no_key: bool
    model_name: str
    given: Mapping[str, Any]
    file_name: str
    read_on: date
    label: str


def price_of(asked: Priced) -> dict[str, Any]:
    """Return the fields ``price`` and ``price_id`` of an entry; :class:`ConfigError` if its price is not known."""
    own = _own_figures(asked)
    if own is not None:
        return {"price": own}
    for provider, model_id, is_assumed in _names(asked):
        found = find_price(provider, model_id, None if is_assumed else asked.api_base)
        if found is not None:
            return _fields(found, is_assumed=is_assumed)
    if asked.called.model_id.endswith(":free") and "openrouter" in (asked.called.prefix, _host(asked.api_base)):
        return {"price": Price(input=0.0, output=0.0, source=FREE, as_of=asked.read_on)}
    if is_own_server(asked):
        return {"price": Price(input=0.0, output=0.0, source=OWN_SERVER, as_of=asked.read_on)}
    wanted = asked.given.get("base_model") or f"{asked.called.prefix}/{asked.called.model_id}"
    raise ConfigError(
        f"{asked.label}: no price known for {wanted!r}: add {PRICES[0]} and {PRICES[1]} (dollars) to its model_info, "
        "or write the entry in a models.toml with price = { input, output, source, as_of } (dollars per million tokens)"
    )


def is_own_server(asked: Priced) -> bool:
    """Return whether nobody sends a bill: the server is one's own by its kind or address, or knows no accounts."""
    if asked.called.route.is_own_server:
        return True
    if asked.called.prefix not in _ANY_SERVER or asked.api_base is None:
        return False
    if asked.has_no_key:
        return True
    return is_private(asked.api_base)


def _own_figures(asked: Priced) -> Price | None:
    given = {ours: asked.given.get(name) for ours, name in zip(_OUR_RATES, PRICES, strict=True)}
    if given["input"] is None or given["output"] is None:
        return None
    try:
        per_mtok = {key: round(float(cost) * 1e6, 9) for key, cost in given.items() if cost is not None}
        return Price.model_validate({**per_mtok, "source": f"model_info in {asked.file_name}", "as_of": asked.read_on})
    except (TypeError, ValueError):
        raise ConfigError(f"{asked.label}: {PRICES[0]} and {PRICES[1]} must be dollars, such as 2.5e-06") from None


def _names(asked: Priced) -> Iterator[tuple[str, str, bool]]:
    """Provider, model and whether it is only assumed: first what the file names, then what the names suggest."""
    called = asked.called
    base = asked.given.get("base_model")
    if isinstance(base, str):
        provider, slash, model_id = base.partition("/")
        yield (provider, model_id, False) if slash and provider in ROUTES else (called.prefix, base, False)
        yield "openai", base, True  # in a deployment of Azure, whose prices are the same
        return
    yield called.prefix, called.model_id, False
    if called.prefix == "bedrock":
        yield called.prefix, called.model_id.partition(".")[2], False  # without us., eu., global.
    if called.route.is_own_server:
        return
    yield called.prefix, called.model_id, True
    provider, slash, model_id = called.model_id.partition("/")
    if slash and provider in ROUTES:
        yield provider, model_id, True
    if called.prefix == "azure":
        yield called.prefix, asked.model_name, True


def _fields(found: FoundPrice, *, is_assumed: bool) -> dict[str, Any]:
    if not is_assumed:
        return {"price": found.price, "price_id": found.price_id}
    price = found.price.model_copy(update={"source": f"{ASSUMED}{found.price.source}"})
    return {"price": price, "price_id": found.price_id}


def _host(api_base: str | None) -> str:
    return "openrouter" if api_base is not None and "openrouter.ai" in (urlsplit(api_base).hostname or "") else ""
