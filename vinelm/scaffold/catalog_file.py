"""Writes the text of a catalog of models, ``models.toml``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from vinelm.catalog import Catalog, Model
from vinelm.errors import ConfigError
from vinelm.meant import did_you_mean

PROVIDER_MODELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "openai": ("openai:gpt-5-nano", "openai:gpt-5-mini", "openai:gpt-5"),
        "anthropic": ("anthropic:claude-haiku-4-5", "anthropic:claude-sonnet-4-5"),
        "gemini": ("google_genai:gemini-2.5-flash-lite", "google_genai:gemini-2.5-flash", "google_genai:gemini-2.5-pro"),
        "bedrock": ("bedrock:openai.gpt-oss-120b-1:0", "bedrock:moonshotai.kimi-k2.5", "bedrock:deepseek.v3.2"),
    }
)
"""By provider: a cheap model, an expensive one, and one in between, as a start for users who only name a provider."""
_BASE_VARIABLES = {
    "openai": ("OPENAI_API_BASE", "OPENAI_BASE_URL"),
    "anthropic": ("ANTHROPIC_API_URL", "ANTHROPIC_BASE_URL"),
}
"""Environment variables from which LangChain's models and clients read a server; the first that is set counts."""
_PUBLIC = frozenset({"api.openai.com", "api.anthropic.com"})
SIMULATED = "simulated"
ANSWER_TOKENS = 4096
"""Limit of an answer in tokens: models that reason need this much before they answer."""
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
    """Return the models that ``choice`` names, as ``provider:model``, without duplicates.

    Args:
        choice: Names: ``provider:model`` for a model, a provider for a selection of its models, or ``simulated``.

    Raises:
        ConfigError: A name is not a provider, or ``simulated`` is not alone.
    """
    found: dict[str, None] = {}
    for item in (part.strip() for part in choice):
        if item in PROVIDER_MODELS:
            found |= dict.fromkeys(PROVIDER_MODELS[item])
        elif ":" in item or item == SIMULATED:
            found[item] = None
        else:
            known = ", ".join((*PROVIDER_MODELS, SIMULATED))
            named = {name.partition(":")[2]: name for names in PROVIDER_MODELS.values() for name in names} | dict.fromkeys(
                (*PROVIDER_MODELS, SIMULATED)
            )
            near = named.get(item) or did_you_mean(item, [*named, *filter(None, named.values())])
            meant = f" (did you mean {near!r}?)" if item in named else near
            raise ConfigError(
                f"models: {item!r}{meant} is neither PROVIDER:MODEL, such as openai:gpt-5-mini, nor one of {known}"
            )
    if SIMULATED in found and len(found) > 1:
        raise ConfigError("models: simulated models and real ones do not mix: name either")
    return tuple(found)


def bases_of(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the servers to which environment variables redirect the calls of a provider, keyed by the provider's prefix.

    The values are pairs (URL, name of the variable).
    """
    found: dict[str, tuple[str, str]] = {}
    for prefix, names in _BASE_VARIABLES.items():
        given = [(environment[name], name) for name in names if environment.get(name)]
        if given and (urlsplit(given[0][0]).hostname or "") not in _PUBLIC:
            found[prefix] = given[0]
    return found


def catalog_text(models: Iterable[str], bases: Mapping[str, tuple[str, str]] = MappingProxyType({})) -> str:
    """Return the text of a catalog with an entry for each ``provider:model``; the single name ``simulated`` gives two
    simulated models.

    Args:
        models: The models.
        bases: The servers to which calls are redirected, as :func:`bases_of` returns them.

    Raises:
        ConfigError: A model has no known price, or there is no model.
    """
    specs = tuple(models)
    if specs == (SIMULATED,):
        return _SIMULATED
    if not specs:
        raise ConfigError("no model is named: name at least one, such as openai:gpt-5-mini")
    found = dict(zip(specs, Catalog.from_strings(specs).models, strict=True))
    return "\n".join([_HEAD, *(_entry(spec, model, bases) for spec, model in found.items())])


def entry_names(models: Iterable[str]) -> dict[str, str]:
    """Return the name of each model's entry in the text of :func:`catalog_text`, keyed by ``provider:model``; empty for
    simulated models.
    """
    specs = tuple(models)
    if SIMULATED in specs or not specs:
        return {}
    return {spec: _name(model) for spec, model in zip(specs, Catalog.from_strings(specs).models, strict=True)}


def unpriced(models: Iterable[str]) -> list[str]:
    """Return the models, each as ``provider:model``, for which no list price is known, such as models of Ollama."""
    found = []
    for spec in models:
        try:
            Catalog.from_strings((spec,))
        except ConfigError:
            found.append(spec)
    return found


def _prefix(spec: str) -> str:
    return spec.partition(":")[0]


def _name(model: Model) -> str:
    return model.model_id.partition(":")[2] if model.provider == "langchain" else model.model_id


def _entry(spec: str, model: Model, bases: Mapping[str, tuple[str, str]]) -> str:
    price = model.price
    dollars = f"${price.input:g} in, ${price.output:g} out per million tokens ({price.as_of})"
    base, said = bases.get(_prefix(spec), ("", "")) if model.provider in _BASE_VARIABLES else ("", "")
    # At the address of OpenAI's own client are OpenAI's models, not those of a compatible server.
    is_openai = bool(base) and model.provider == "openai"
    lines = [
        "[[model]]",
        f"name = {json.dumps(_name(model))}",
        f"provider = {json.dumps(model.provider)}",
        f"model = {json.dumps(model.model_id)}",
        *(
            [f"api_base = {json.dumps(base)}  # {said}; if its prices differ from the list's, give price = {{ .. }}"]
            if base
            else []
        ),
        *([f"api_key_env = {json.dumps(model.api_key_env)}"] if model.api_key_env else []),
        *([f"engine = {json.dumps(model.engine)}"] if model.provider == "langchain" else []),
        f"max_tokens = {ANSWER_TOKENS}  # of an answer, reasoning included; a longer one is cut off and counts as failed",
        *(['options = { max_tokens_parameter = "max_completion_tokens" }'] if is_openai else []),
        f"price_id = {json.dumps(model.price_id)}  # {dollars}",
    ]
    return "\n".join(lines) + "\n"
