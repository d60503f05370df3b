"""Finds the price of a LiteLLM ``model_list`` entry: its own rates, the list price, or $0 for a self-hosted server.

Each rate of an entry is either used, or raises an error. A note names rates that apply to no call.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from vinelm.catalog.litellm_keys import PRICES, is_rate
from vinelm.catalog.litellm_routes import ROUTES, Called, is_private
from vinelm.catalog.model import LongPromptRates, Price
from vinelm.catalog.prices import CHEAP_TIERS, FoundPrice, beyond_list_prices, find_price, is_fine_tuned, tier_of
from vinelm.errors import ConfigError

_ANY_SERVER = ("openai", "openai_like", "custom_openai")
"""Prefixes that only name a protocol: the address says whose server it is."""
OWN_SERVER = "no bill: a server of your own"
FREE = "free of charge: OpenRouter's :free models"
ASSUMED = "assumed from the name: "

_TOKEN_RATES = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cached",
    "input_cost_per_token_cache_hit": "cached",
    "cache_creation_input_token_cost": "cache_write",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
}
_TOKEN_RATE = re.compile(r"(.+?)(?:_above_(\d+)k_tokens)?(?:_(priority|flex|batches))?")
"""The name of a token rate: what is charged, for which prompts, at which tier."""
_CALL_RATES = ("input_cost_per_request", "output_cost_per_request", "input_cost_per_query")
_ONLY_WITH = (
    (re.compile(r"search|interpreter|computer|vector_store|file_|maps|session"), ("web_search_options", "tools")),
    (re.compile(r"^output_cost_per_(image|audio|video)"), ("modalities", "audio")),
)
"""Patterns of rates that only apply if the entry asks for what they charge, with the parameters that ask for it."""


class Priced(NamedTuple):
    """The facts that decide the price of an entry: the called model, the address, and the rates in the file.

    ``has_no_key`` is whether the key in the file is a placeholder, as usual for servers without accounts. ``given`` are all
    parameters of the entry, ``options`` the parameters that are sent.
    """

    called: Called
    api_base: str | None
    has_no_key: bool
    model_name: str
    given: Mapping[str, Any]
    options: Mapping[str, Any]
    file_name: str
    read_on: date
    label: str

    @property
    def tier(self) -> str:
        """The requested service tier; "" for the ordinary tier."""
        return tier_of(self.options)


def price_of(asked: Priced) -> dict[str, Any]:
    """Return the fields ``price`` and ``price_id`` of an entry; raise :class:`ConfigError` if its price is not known."""
    rates, per_call = _own_rates(asked), _per_call(asked)
    if {"input", "output"} <= set(rates.get(0, {})):
        return {"price": _made(asked, rates, per_call)}
    listed = _list_price(asked)
    has_own = bool(rates) or per_call is not None
    if listed is None:
        if has_own:
            raise _unknown(asked)  # half a price: the missing half is not $0
        return {"price": _nothing(asked)}
    if tier := beyond_list_prices(asked.options):
        raise ConfigError(f"{asked.label}: service_tier {tier!r} is not billed at the list price: {_add(tier)}")
    return {**listed, "price": _overlaid(asked, listed["price"], rates, per_call)} if has_own else listed


def is_own_server(asked: Priced) -> bool:
    """Return whether the server of an entry is self-hosted, so that calls are free.

    This is so if the provider is always self-hosted. If the provider is only a protocol that any server may use, the entry must
    have a URL, and its key must be a placeholder or the URL private.
    """
    if asked.called.route.is_own_server:
        return True
    if asked.called.prefix not in _ANY_SERVER or asked.api_base is None:
        return False
    if asked.has_no_key:
        return True
    return is_private(asked.api_base)


def has_no_effect(key: str, given: Mapping[str, Any]) -> bool:
    """Return whether the rate ``key`` applies to none of an entry's calls, because they do not request what the rate is for.

    A rate may be for a service tier, or for a service such as web search. ``given`` has the parameters of the entry.
    """
    kind, _, tier = _parts(key)
    if kind is not None:
        return tier in ("priority", "flex") and tier != tier_of(given)
    body = given.get("extra_body")
    asks = {**given, **(body if isinstance(body, Mapping) else {})}
    return any(pattern.search(key) and not any(asks.get(name) for name in needs) for pattern, needs in _ONLY_WITH)


# -- an entry's own rates

_Rates = dict[int, dict[str, float]]
"""By the prompt length above which they apply: dollars per million tokens, by our names of rates."""


def _parts(key: str) -> tuple[str | None, int, str | None]:
    """Split ``key``, the name of a token rate in a LiteLLM file, into its parts.

    Returns:
        A tuple of VineLM's name of the rate, the prompt length in tokens above which the rate applies, and the service tier.
            The tier is None if it is the ordinary one. ``(None, 0, None)`` for any other key.
    """
    if (hour := key.replace("_above_1hr", "")) != key:
        kind, above, tier = _parts(hour)
        return ("cache_write_1h" if kind == "cache_write" else None), above, tier
    named = _TOKEN_RATE.fullmatch(key)
    if named is None or named[1] not in _TOKEN_RATES:
        return None, 0, None
    return _TOKEN_RATES[named[1]], int(named[2] or 0) * 1000, named[3]


def _own_rates(asked: Priced) -> _Rates:
    """Return the rates that the entry itself states for its service tier, in dollars per million tokens.

    The outer key is the prompt length in tokens above which the rates apply; the inner key is the name of the rate. Raise
    :class:`ConfigError` for rates that are not supported.
    """
    standard: _Rates = {}
    of_tier: _Rates = {}
    batches: dict[str, float] = {}
    for key, value in asked.given.items():
        if not is_rate(str(key)) or value is None or key in _CALL_RATES:
            continue
        kind, above, tier = _parts(str(key))
        if kind is None:
            _check_other(asked, str(key), value)
        elif tier == "batches":
            batches[kind] = max(_mtok(asked, str(key), value), batches.get(kind, 0.0))
        elif tier is None or tier == asked.tier:
            (standard if tier is None else of_tier).setdefault(above, {})[kind] = _mtok(asked, str(key), value)
    for above, rates in _tiered(asked):
        standard.setdefault(above, {}).update(rates)
    _check_batches(asked, standard, batches)
    if not asked.tier:
        return standard
    if asked.tier in CHEAP_TIERS:
        return {above: {**standard.get(above, {}), **of_tier.get(above, {})} for above in {*standard, *of_tier}}
    for above, rates in standard.items():
        wanted = {"input", "output"} & set(rates)
        if not wanted <= set(of_tier.get(above, {})):
            raise ConfigError(f"{asked.label}: no rates for service_tier {asked.tier!r}: {_add(asked.tier, above)}")
    return of_tier


def _check_other(asked: Priced, key: str, value: Any) -> None:
    """Raise :class:`ConfigError` if the rate ``key``, for which :class:`Price` has no field, may make calls cost more.

    A rate per token is refused if it is above the entry's ordinary rate for input or output (0 if not stated). Any other rate
    is refused if it is above 0. A table of rates is always refused, except ``tiered_pricing``, which :func:`_tiered` reads.
    Rates that apply to none of the entry's calls are accepted.
    """
    if key == "tiered_pricing" or has_no_effect(key, {**asked.given, **asked.options}):
        return
    if isinstance(value, Mapping | list):
        raise _refused(asked, key)
    rate, side = _mtok(asked, key, value), "output" if key.startswith("output") else "input"
    of_text = asked.given.get(f"{side}_cost_per_token") if key.endswith("_token") else None
    if rate > (0.0 if of_text is None else _mtok(asked, key, of_text)):
        raise _refused(asked, key)


def _refused(asked: Priced, key: str) -> ConfigError:
    return ConfigError(
        f"{asked.label}: {key} cannot be booked: leave it out if no call meets it, or write the entry in a models.toml "
        "with the dearest price that a call may have"
    )


def _check_batches(asked: Priced, standard: _Rates, batches: Mapping[str, float]) -> None:
    """Raise :class:`ConfigError` if the entry states a batch rate above half of its ordinary rate, since VineLM counts batches
    at half.

    ``standard`` has the ordinary rates, ``batches`` the batch rates by name, in dollars per million tokens.
    """
    for kind in ("input", "output"):
        ordinary = standard.get(0, {}).get(kind)
        if ordinary is not None and batches.get(kind, 0.0) > ordinary / 2 * (1 + 1e-9):
            raise ConfigError(
                f"{asked.label}: {kind}_cost_per_token_batches is above half of {kind}_cost_per_token, which batches are "
                "booked at: leave it out if the entry goes in no batch"
            )


def _tiered(asked: Priced) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield, for each tier of LiteLLM's ``tiered_pricing``, the prompt tokens from which it applies, and its rates by VineLM's
    names in dollars per million tokens.
    """
    listed = asked.given.get("tiered_pricing")
    for tier in listed if isinstance(listed, list) else ():
        span = tier.get("range") if isinstance(tier, Mapping) else None
        if not isinstance(span, list) or not span or not isinstance(span[0], int | float):
            raise _refused(asked, "tiered_pricing")
        rates = {key: value for key, value in tier.items() if key != "range" and value is not None}
        dearest: dict[str, float] = {}
        for key, value in rates.items():
            kind = "output" if key == "output_cost_per_reasoning_token" else _parts(str(key))[0]
            if kind is None:
                raise _refused(asked, f"tiered_pricing.{key}")
            dearest[kind] = max(_mtok(asked, str(key), value), dearest.get(kind, 0.0))
        yield int(span[0]), dearest


def _per_call(asked: Priced) -> float | None:
    """Return the dollars that the entry charges for each call, apart from tokens; None if it states no such charge."""
    stated = [_mtok(asked, key, asked.given[key]) / 1e6 for key in _CALL_RATES if asked.given.get(key) is not None]
    return sum(stated) if stated else None


def _mtok(asked: Priced, key: str, value: Any) -> float:
    try:
        dollars = round(float(value) * 1e6, 9)
    except (TypeError, ValueError):
        dollars = math.nan
    if not 0.0 <= dollars < math.inf or isinstance(value, bool):
        raise ConfigError(f"{asked.label}: {key} must be dollars, such as 2.5e-06")
    return dollars


def _made(asked: Priced, rates: _Rates, per_call: float | None) -> Price:
    long = tuple(LongPromptRates(above=above, **rates[above]) for above in sorted(rates) if above)
    source = f"model_info in {asked.file_name}"
    return Price(**rates[0], long_prompts=long, call=per_call or 0.0, source=source, as_of=asked.read_on)


def _overlaid(asked: Priced, listed: Price, rates: _Rates, per_call: float | None) -> Price:
    """Return the list price ``listed``, in which the entry's own ``rates`` and charge ``per_call`` (None if it has none)
    replace the listed ones.
    """
    long = {one.above: one for one in listed.long_prompts}
    for above in (above for above in rates if above):
        long[above] = long.get(above, LongPromptRates(above=above)).model_copy(update=rates[above])
    return listed.model_copy(
        update={
            **rates.get(0, {}),
            "long_prompts": tuple(long[above] for above in sorted(long)),
            "call": listed.call if per_call is None else per_call,
            "source": f"model_info in {asked.file_name}, the rest {listed.source}",
        }
    )


# -- prices of others


def _list_price(asked: Priced) -> dict[str, Any] | None:
    """Return the fields ``price`` and ``price_id`` for the list price of the called model; None if no price is known.

    If it is uncertain which model is called, because it is guessed from a name or from ``base_model``, return the fields of the
    most expensive candidate.
    """
    found: list[FoundPrice] = []
    for provider, model_id, is_assumed in _names(asked):
        one = find_price(provider, model_id, None if is_assumed else asked.api_base)
        if one is not None and not is_assumed:
            return {"price": one.price, "price_id": one.price_id}
        if one is not None:
            found.append(one)
    if not found:
        return None
    dearest = max(found, key=lambda one: one.price.input + one.price.output)
    price = dearest.price.model_copy(update={"source": f"{ASSUMED}{dearest.price.source}"})
    return {"price": price, "price_id": dearest.price_id}


def _names(asked: Priced) -> Iterator[tuple[str, str, bool]]:
    """Yield the models that an entry may mean, the most likely first, as (provider, model id, whether this is only a guess)."""
    called, base = asked.called, asked.given.get("base_model")
    is_tuned = is_fine_tuned(called.model_id)
    names_price = isinstance(base, str) and (
        is_fine_tuned(base) or not is_tuned
    )  # a base model is cheaper than models derived from it
    provider, slash, model_id = str(base).partition("/")
    named = (provider, model_id) if slash and provider in ROUTES else (called.prefix, str(base))
    if names_price and called.prefix == "azure":  # its deployments have arbitrary names
        yield *named, False
        yield "openai", named[1], True  # whose prices are the same
        return
    yield called.prefix, called.model_id, False
    if called.prefix == "bedrock":
        yield called.prefix, called.model_id.partition(".")[2], False  # without the prefixes us., eu. and global.
    if names_price:
        yield *named, asked.api_base != called.route.api_base
        yield *named, True
        yield "openai", named[1], True
    if called.route.is_own_server:
        return
    yield called.prefix, called.model_id, True
    provider, slash, model_id = called.model_id.partition("/")
    if slash and provider in ROUTES:
        yield provider, model_id, True
    if called.prefix == "azure" and not is_tuned:
        yield called.prefix, asked.model_name, True


def _nothing(asked: Priced) -> Price:
    """Return the zero price of a model that is not billed; raise :class:`ConfigError` for any other model."""
    is_sold = is_fine_tuned(asked.called.model_id) or asked.given.get("base_model") is not None
    if asked.called.model_id.endswith(":free") and "openrouter" in (asked.called.prefix, _host(asked.api_base)):
        source = FREE
    elif is_own_server(asked) and (asked.called.route.is_own_server or not is_sold):
        source = OWN_SERVER
    else:
        raise _unknown(asked)
    return Price(input=0.0, output=0.0, source=source, as_of=asked.read_on)


def _unknown(asked: Priced) -> ConfigError:
    called = f"{asked.called.prefix}/{asked.called.model_id}"
    is_tuned = is_fine_tuned(called)
    wanted = called if is_tuned else asked.given.get("base_model") or called
    why = ", which is fine-tuned and has a price of its own" if is_tuned else ""
    return ConfigError(
        f"{asked.label}: no price known for {wanted!r}{why}: add {PRICES[0]} and {PRICES[1]} (dollars) to its model_info, or "
        "write the entry in a models.toml with price = { input, output, source, as_of } (dollars per million tokens)"
    )


def _add(tier: str, above: int = 0) -> str:
    long = f"_above_{above // 1000}k_tokens" if above else ""
    if tier == "priority":
        return f"add {PRICES[0]}{long}_priority and {PRICES[1]}{long}_priority to its model_info"
    return "write the entry in a models.toml with the price of that tier"


def _host(api_base: str | None) -> str:
    return "openrouter" if api_base is not None and "openrouter.ai" in (urlsplit(api_base).hostname or "") else ""
