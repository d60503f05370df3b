"""Makes catalog entries from LangChain's ``provider:model`` strings and from ready chat models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from vinelm.catalog.billed_settings import LIMITS, held_in, limit_in, settings_of
from vinelm.catalog.entries import entry
from vinelm.catalog.model import MOST_TOKENS, Model, Price
from vinelm.catalog.prices import beyond_list_prices, find_price
from vinelm.errors import ConfigError

PROVIDERS: Mapping[str, tuple[str, str | None]] = MappingProxyType(
    {
        "anthropic": ("anthropic", "ANTHROPIC_API_KEY"),
        "openai": ("openai", "OPENAI_API_KEY"),
        "bedrock": ("bedrock", None),
        "bedrock_converse": ("bedrock", None),
        "amazon_bedrock": ("bedrock", None),  # as ready chat models call it
        "google_genai": ("gemini", "GEMINI_API_KEY"),
    }
)
"""LangChain's provider name to ours, and the environment variable of its API key. Others are called through LangChain."""
LANGCHAIN = "langchain"
MAX_TOKENS = 4096
"""Answer limit assumed in the cost bound of a ready chat model that sets none."""

AnyPrice = Price | Mapping[str, Any]


def models_of_strings(specs: Iterable[str], prices: Mapping[str, AnyPrice]) -> list[Model]:
    """Return one catalog entry for each ``provider:model`` string, which is also the entry's name.

    ``prices`` has prices by string. Raises :class:`ConfigError` for a string whose price is not known.
    """
    listed = list(specs)
    _refuse_unknown(prices, listed)
    return [_of_string(spec, prices.get(spec)) for spec in listed]


def entry_of_chat(chat: Any, listed: Iterable[Model], price: AnyPrice | None = None) -> Model:
    """Return the entry in ``listed`` that has the provider and the model id of a chat model object, or else a new entry.

    ``price`` is the price of a new entry; None looks it up.

    Raises:
        ConfigError: the object is not a chat model, or the catalog lacks it and its price is not known.
    """
    from langchain_core.language_models import BaseChatModel

    if isinstance(chat, BaseChatModel):
        family, model_id = _facts(chat)
        ours = PROVIDERS.get(family, (family, None))[0]
        known = list(listed)
        for model in known:
            is_named_in_full = model.provider == LANGCHAIN and model.model_id == f"{family}:{model_id}"
            is_of_family = ours in (model.provider, model.engine, LANGCHAIN)
            if is_named_in_full or (model.model_id in (model_id, f"{family}:{model_id}") and is_of_family):
                return model
        names = {model.name for model in known}
        name = model_id if model_id not in names else f"{ours}/{model_id}"
        made = _of_chat(name, chat, price)
        # The object's own limit applies where the object is called; other stages may use the entry as well.
        return made.model_copy(update={"max_tokens": max(made.max_tokens, MAX_TOKENS)})
    return _of_chat(type(chat).__name__, chat, price)


def models_of_chats(chats: Mapping[str, Any], prices: Mapping[str, AnyPrice]) -> list[Model]:
    """Return one entry for each chat model.

    Raises :class:`ConfigError` for an object that is not a chat model or has no known price.
    """
    _refuse_unknown(prices, list(chats))
    return [_of_chat(name, chat, prices.get(name)) for name, chat in chats.items()]


def _of_string(spec: str, price: AnyPrice | None) -> Model:
    prefix, colon, model_id = spec.partition(":")
    if not colon or not prefix or not model_id:
        raise ConfigError(f"model {spec!r}: write it as PROVIDER:MODEL, such as openai:gpt-4.1-mini")
    provider, key_env = PROVIDERS.get(prefix, (LANGCHAIN, None))
    fields: dict[str, Any] = {"name": spec, "provider": provider, "model": model_id if provider != LANGCHAIN else spec}
    if key_env is not None:
        fields["api_key_env"] = key_env
    family = provider if provider != LANGCHAIN else prefix
    return entry({**fields, "engine": family, **_price(spec, f"{family}/{model_id}", price)}, "from_strings")


def _of_chat(name: str, chat: Any, price: AnyPrice | None) -> Model:
    from langchain_core.language_models import BaseChatModel

    if not isinstance(chat, BaseChatModel):
        raise ConfigError(
            f"model {name!r}: is a {type(chat).__name__}: give a LangChain chat model, before bind() or bind_tools()"
        )
    family, model_id = _facts(chat)
    own = {key: getattr(chat, key, None) for key in LIMITS}
    fields: dict[str, Any] = {"name": name, "provider": LANGCHAIN, "model": model_id, "engine": family}
    fields["max_tokens"] = min(limit_in(own, *held_in(settings_of(chat))) or MAX_TOKENS, MOST_TOKENS)
    ours = PROVIDERS.get(family, (family, None))[0]
    sent = {**(getattr(chat, "model_kwargs", None) or {}), "service_tier": getattr(chat, "service_tier", None)}
    if price is None and (tier := beyond_list_prices(sent)):
        raise ConfigError(f"model {name!r}: service_tier {tier!r} is not billed at the list price: {_pass_a_price(name)}")
    return entry({**fields, **_price(name, f"{ours}/{model_id}", price)}, "from_chat_models")


def _facts(chat: Any) -> tuple[str, str]:
    """Return the provider and the model name that a chat model reports to LangChain's traces, or ``"langchain"`` and its class
    name.
    """
    facts = chat._get_ls_params()
    return str(facts.get("ls_provider") or "langchain"), str(facts.get("ls_model_name") or type(chat).__name__)


def _price(name: str, price_id: str, price: AnyPrice | None) -> dict[str, Any]:
    if price is not None:
        return {"price": price}
    found = find_price(*price_id.split("/", 1))
    if found is not None:
        return {"price": found.price, "price_id": found.price_id}
    raise ConfigError(f"model {name!r}: no price known for {price_id!r}: {_pass_a_price(name)}")


def _pass_a_price(name: str) -> str:
    fields = "{'input': ..., 'output': ..., 'source': ..., 'as_of': ...}"
    return f"pass prices={{{name!r}: {fields}}} (vine.around: price={fields}), dollars per million tokens; or add an entry"


def _refuse_unknown(prices: Mapping[str, AnyPrice], names: list[str]) -> None:
    for name in prices:
        if name not in names:
            raise ConfigError(f"prices has {name!r}, which is not a model of this catalog: its models are {', '.join(names)}")
