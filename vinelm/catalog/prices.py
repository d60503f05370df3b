"""Finds the price of a model: in the package's own price file, or in the data of genai-prices. No network."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vinelm.catalog.model import LongPromptRates, Model, Price

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

OLD_PRICE_DAYS = 90
"""A price that was read longer ago than this is reported."""
GENAI_PRICES = "genai-prices"
_NAMES = {
    "azure_ai": "azure", "bedrock": "aws", "cohere_chat": "cohere", "fireworks_ai": "fireworks", "gemini": "google",
    "google_genai": "google", "google_vertexai": "google", "mistralai": "mistral", "moonshot": "moonshotai",
    "together_ai": "together", "vertex": "google", "vertex_ai": "google", "xai": "x-ai",
}  # fmt: skip
"""Names that LiteLLM, LangChain and we use where genai-prices has another one."""

_RATES = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cached": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "audio": "input_audio_mtok",
    "audio_out": "output_audio_mtok",
}
"""Our names of rates, with those of genai-prices."""


_TUNED = re.compile(r"(^|[/:])ft:|[.:]ft-|(^|[-_/])ft([-_]|$)|fine-?tun|^tunedModels/", re.IGNORECASE)


STANDARD_TIERS = ("", "auto", "default", "standard", "standard_only", "on_demand")
"""Values of ``service_tier`` that are billed at the ordinary rates."""
CHEAP_TIERS = ("flex", "batch")
"""Values that cost no more than the ordinary rates."""


class FoundPrice(NamedTuple):
    """A price and its id ``PROVIDER/MODEL``, from the package's own price file or from the data of genai-prices."""

    price_id: str
    price: Price


@cache
def bundled_prices() -> Mapping[str, Price]:
    """Return the prices by id from the package's dated price file (``vinelm/prices.toml``)."""
    plain = tomllib.loads((resources.files("vinelm") / "prices.toml").read_text(encoding="utf-8"))
    return {price_id: Price.model_validate(fields) for price_id, fields in plain["price"].items()}


def find_price(provider: str, model_id: str, api_base: str | None = None) -> FoundPrice | None:
    """Return the price of a provider's model; None if no source has it.

    The package's own price file takes precedence, unless the data of genai-prices are more than 90 days newer.

    Args:
        provider: The provider as VineLM, LiteLLM or LangChain calls it, such as ``"openai"`` or ``"together_ai"``.
        model_id: The provider's id of the model.
        api_base: The URL of the calls. In the data of genai-prices, the service at this URL takes precedence over ``provider``.
            With a URL, ``"openai"`` only names the protocol, and OpenAI's prices apply only to OpenAI's URL.
    """
    price_id = f"{provider}/{model_id}"
    ours = bundled_prices().get(price_id) if api_base is None or provider != "openai" else None
    theirs = _listed(provider, model_id, api_base)
    if ours is None or (theirs is not None and (theirs.price.as_of - ours.as_of).days > OLD_PRICE_DAYS):
        return theirs
    return FoundPrice(price_id, ours)


def is_fine_tuned(model_id: str) -> bool:
    """Return whether a model's name marks it as fine-tuned, so that its price differs from the base model's."""
    return bool(_TUNED.search(model_id))


def tier_of(asked: Mapping[str, Any]) -> str:
    """Return the service tier that ``asked`` selects; "" for the ordinary tier.

    ``asked`` has a model's options, or the body of a request.
    """
    body = asked.get("extra_body")
    given = asked.get("service_tier") or (body.get("service_tier") if isinstance(body, Mapping) else None)
    named = str((given.get("type") if isinstance(given, Mapping) else given) or "").lower()
    return "" if named in STANDARD_TIERS else named


def beyond_list_prices(asked: Mapping[str, Any]) -> str:
    """Return the service tier that ``asked`` selects if it may cost more than the list price; "" otherwise.

    ``asked`` has a model's options, or the body of a request.
    """
    tier = tier_of(asked)
    return "" if tier in CHEAP_TIERS else tier


def price_of_id(price_id: str) -> Price | None:
    """Return the price with this id, ``PROVIDER/MODEL``; None if no source has it."""
    provider, _, model_id = price_id.partition("/")
    found = find_price(provider, model_id) if model_id else None
    return None if found is None else found.price


def old_price_note(models: Iterable[Model], today: date) -> str | None:
    """Return one line that names the models with prices over 90 days old, and says what to do; None if there are no such
    models.

    Free models are left out.
    """
    old = [model for model in models if is_old(model, today)]
    if not old:
        return None
    days = max((today - model.price.as_of).days for model in old)
    names = ", ".join(model.name for model in old[:5]) + (f" and {len(old) - 5} more" if len(old) > 5 else "")
    cures = dict.fromkeys(old_price_cure(model) for model in old)
    more = " (more: vinelm check --models)" if len(cures) > 1 else ""
    return f"prices up to {days} days old: {names}: {next(iter(cures))}{more}"


def is_same_amount(one: Price, other: Price) -> bool:
    """Return whether two prices charge the same, ignoring their source, date and cache lifetime."""
    about = {"source", "as_of", "cache_ttl_s"}
    about |= {name for name in ("audio", "audio_out") if None in (getattr(one, name), getattr(other, name))}  # later rates
    return one.model_dump(exclude=about) == other.model_dump(exclude=about)


def changed_prices_note(held: Mapping[str, Model], now: Mapping[str, Model], where: str) -> str | None:
    """Return one line on changed prices: the first model with its old and new price, the number of others, and how to update
    plans.

    Return None if no price has changed.

    Args:
        held: the models of a trie or a store, by name.
        now: the models of a catalog, by name.
        where: the catalog's name in the line.
    """
    changed = [name for name in held if name in now and not is_same_amount(held[name].price, now[name].price)]
    if not changed:
        return None
    first, more = changed[0], f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    old, new = held[first].price, now[first].price
    was = f"${old.input:g} in and ${old.output:g} out per million tokens, now ${new.input:g} and ${new.output:g}"
    cure = "`vinelm store reprice TRIE --store DB --models FILE -o NEW` takes the new ones"
    return f"prices of {where} are not those that plans go by: {first} {was}{more}: {cure}"


def has_list_price(model: Model) -> bool:
    """Return whether the model's price is a list price, which applies to the ordinary service tier."""
    return model.price_id is not None or model.price.source == GENAI_PRICES


def price_origin(model: Model) -> str:
    """Return where the model's price comes from, in a few words: the catalog's entry, this package, or genai-prices."""
    source = model.price.source
    if GENAI_PRICES in source:
        assumed = ", assumed" if not source.startswith(GENAI_PRICES) else ""
        return source[source.index(GENAI_PRICES) :].partition(":")[0] + assumed
    return "the entry" if model.price_id is None else "vinelm"


def old_price_cure(model: Model) -> str:
    """Return a text that tells the user how to update the model's old price."""
    if GENAI_PRICES in model.price.source:
        return "upgrade the package genai-prices, or give a price in the catalog"
    return f"compare it with {model.price.source}, and give it with today's date"


def is_old(model: Model, today: date) -> bool:
    """Return whether the model's price is over 90 days old; False for free and offline models."""
    price = model.price
    if model.provider in ("recorded", "simulated"):
        return False
    return (today - price.as_of).days > OLD_PRICE_DAYS and bool(price.input or price.output or price.call)


def _listed(provider: str, model_id: str, api_base: str | None) -> FoundPrice | None:
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    named = _NAMES.get(provider, provider)
    for url, name in ((api_base, None), (None, named)):
        if url is None and (name is None or (name == "openai" and api_base is not None)):
            continue  # OpenAI's prices do not apply to a server that only speaks OpenAI's protocol
        try:
            seller = snapshot.find_provider(None, name, url)
            model = seller.find_model(model_id, all_providers=snapshot.providers)
        except LookupError:
            continue
        if model is None or (is_fine_tuned(model_id) and not is_fine_tuned(model.id)):
            continue  # a name is also found by a prefix
        if (price := _price(seller, model)) is not None:
            return FoundPrice(f"{provider if url is None else seller.id}/{model_id}", price)
    return None


def _price(seller: Provider, model: ModelInfo) -> Price | None:
    listed = _standing(model, datetime.now(tz=UTC))
    rates = {field: _rate(listed, key) for field, key in _RATES.items()}
    if rates["input"] is None or rates["output"] is None:
        return None  # not a chat model
    if rates["audio"] is None and seller.id == "google":  # which lists a separate rate wherever there is one
        rates["audio"] = rates["input"]
    page = f" ({seller.pricing_urls[0]})" if seller.pricing_urls else ""
    requests = getattr(listed, "requests_kcount", None)
    return Price.model_validate(
        {
            **{field: rate for field, rate in rates.items() if rate is not None},
            "call": float(requests) / 1000.0 if requests is not None else 0.0,
            "long_prompts": _tiers(listed),
            "source": f"{GENAI_PRICES} {_version()}: {model.id}{page}",
            "as_of": _data_date(),
        }
    )


def _standing(model: ModelInfo, now: datetime) -> ModelPrice:
    """Return the price of a model at the time ``now``. If prices depend on the time of day, return the price with the highest
    output rate.
    """
    if not isinstance(model.prices, list):
        return model.prices
    by_day = [c for c in model.prices if c.constraint is None or not hasattr(c.constraint, "start_time")]
    by_hour = [c.prices for c in model.prices if c not in by_day]
    begun = [c for c in by_day if c.constraint is None or c.constraint.active(now)]
    standard = (begun[-1] if begun else model.prices[0]).prices
    return max((standard, *by_hour), key=lambda prices: _rate(prices, "output_mtok") or 0.0)


def _rate(listed: ModelPrice, key: str, *, above: int | None = None) -> float | None:
    found = getattr(listed, key, None)
    if found is None:
        return None
    if not hasattr(found, "tiers"):
        return float(found)
    tiers: TieredPrices = found
    reached = [tier.price for tier in tiers.tiers if above is not None and tier.start <= above]
    return float(reached[-1] if reached else tiers.base)


def _tiers(listed: ModelPrice) -> list[dict[str, float | int]]:
    """Return the rates of long prompts as arguments of :class:`LongPromptRates`, one dictionary for each threshold, in
    ascending order.
    """
    starts = sorted({tier.start for found in vars(listed).values() for tier in getattr(found, "tiers", ())})
    return [
        {
            "above": start,
            **{
                field: rate
                for field, key in _RATES.items()
                if field in LongPromptRates.model_fields and (rate := _rate(listed, key, above=start)) is not None
            },
        }
        for start in starts
    ]


@cache
def _data_date() -> date:
    """Return the date of the latest price change in the genai-prices data that is not after the package's installation.

    The package does not record the date of its data. The data may be newer than the returned date, but not older.
    """
    from genai_prices import data
    from genai_prices.types import StartDateConstraint

    installed = datetime.fromtimestamp(Path(str(data.__file__)).stat().st_mtime).date()
    changes = (
        conditional.constraint.start_date
        for provider in data.providers
        for model in provider.models
        if isinstance(model.prices, list)
        for conditional in model.prices
        if isinstance(conditional.constraint, StartDateConstraint)
    )
    return max((day for day in changes if day <= installed), default=date(2024, 1, 1))


@cache
def _version() -> str:
    return version("genai-prices")
