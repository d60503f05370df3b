"""The text of a catalog of models, ``models.toml``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from vinelm.catalog import Catalog, Model
from vinelm.errors import ConfigError

PROVIDER_MODELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "openai": ("openai:gpt-5-nano", "openai:gpt-5-mini", "openai:gpt-5"),
        "anthropic": ("anthropic:claude-haiku-4-5", "anthropic:claude-sonnet-4-5"),
        "gemini": ("google_genai:gemini-2.5-flash-lite", "google_genai:gemini-2.5-flash", "google_genai:gemini-2.5-pro"),
        "bedrock": ("bedrock:openai.gpt-oss-120b-1:0", "bedrock:moonshotai.kimi-k2.5", "bedrock:deepseek.v3.2"),
    }
)
"""A provider's name to a cheap model, a dear one, and one between them: a start for those who name only a provider."""
SIMULATED = "simulated"
ANSWER_TOKENS = 4096
"""Tokens of the longest answer: what models that reason need before they answer."""
_HEAD = """\
# The models that the stages may use. Keys stay in the environment variables that are named here.
# Prices are looked up by provider and model; `price = { input = .., output = .., source = "..", as_of = .. }` gives your own.
# `vinelm check --models models.toml` checks keys, prices and limits.
"""
_SIMULATED = """\
# Simulated models: they cost nothing, and no figure from them says anything about a real one.
[[model]]
name = "small"
provider = "simulated"
model = "gemma-27b"
price = { input = 0.2, output = 0.4, source = "simulated", as_of = 2026-11-20 }

[[model]]
name = "large"
provider = "simulated"
model = "sonnet"
price = { input = 3.0, output = 15.0, source = "simulated", as_of = 2026-11-20 }
"""


def chosen_models(choice: Iterable[str]) -> tuple[str, ...]:
    """Return the models that a choice names, each as ``provider:model``, once.

    Args:
        choice: ``provider:model``, or the name of a provider for a choice of its models, or ``simulated``.

    Raises:
        ConfigError: A name is no provider, or ``simulated`` is not alone.
    """
    found: dict[str, None] = {}
    for item in (part.strip() for part in choice):
        if item in PROVIDER_MODELS:
            found |= dict.fromkeys(PROVIDER_MODELS[item])
        elif ":" in item or item == SIMULATED:
            found[item] = None
        else:
            known = ", ".join((*PROVIDER_MODELS, SIMULATED))
            raise ConfigError(f"models: {item!r} is neither PROVIDER:MODEL, such as openai:gpt-5-mini, nor one of {known}")
    if SIMULATED in found and len(found) > 1:
        raise ConfigError("models: simulated models and real ones do not mix: name either")
    return tuple(found)


def catalog_text(models: Iterable[str]) -> str:
    """Return the text of a catalog with an entry for each ``provider:model``; ``simulated`` gives two simulated models.

    Raises:
        ConfigError: A model has no known price, or there is none.
    """
    specs = tuple(models)
    if specs == (SIMULATED,):
        return _SIMULATED
    if not specs:
        raise ConfigError("no model is named: name at least one, such as openai:gpt-5-mini")
    entries = [_entry(model) for model in Catalog.from_strings(specs).models]
    return "\n".join([_HEAD, *entries])


def _entry(model: Model) -> str:
    name = model.model_id.partition(":")[2] if model.provider == "langchain" else model.model_id
    price = model.price
    dollars = f"${price.input:g} in, ${price.output:g} out per million tokens ({price.as_of})"
    lines = [
        "[[model]]",
        f"name = {json.dumps(name)}",
        f"provider = {json.dumps(model.provider)}",
        f"model = {json.dumps(model.model_id)}",
        *([f"api_key_env = {json.dumps(model.api_key_env)}"] if model.api_key_env else []),
        *([f"engine = {json.dumps(model.engine)}"] if model.provider == "langchain" else []),
        f"max_tokens = {ANSWER_TOKENS}  # of an answer, reasoning included; a longer one is cut off and counts as failed",
        f"price_id = {json.dumps(model.price_id)}  # {dollars}",
    ]
    return "\n".join(lines) + "\n"
