"""An existing LiteLLM ``model_list`` as a catalog, unchanged.

Format: https://docs.litellm.ai/docs/proxy/configs. Of the file only ``model_list`` is read: the rest configures LiteLLM's proxy
and router, whose place VineLM takes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from vinelm.catalog import Model, bundled_prices, catalog_text, entry
from vinelm.errors import ConfigError


class Route(NamedTuple):
    """What a prefix of LiteLLM's model strings is here. ``api_base`` is where the service is, None: the entry says."""

    provider: str
    key_env: str | None = None
    api_base: str | None = None
    needs_base: bool = False


ROUTES: Mapping[str, Route] = MappingProxyType(
    {
        "bedrock": Route("bedrock"),
        "bedrock_converse": Route("bedrock"),
        "deepseek": Route("openai", "DEEPSEEK_API_KEY", "https://api.deepseek.com/v1"),
        "gemini": Route("gemini", "GEMINI_API_KEY"),
        "groq": Route("openai", "GROQ_API_KEY", "https://api.groq.com/openai/v1"),
        "hosted_vllm": Route("openai", needs_base=True),
        "litellm_proxy": Route("openai", needs_base=True),
        "lm_studio": Route("openai", needs_base=True),
        "openai": Route("openai", "OPENAI_API_KEY"),
        "openai_like": Route("openai", needs_base=True),
        "openrouter": Route("openai", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1"),
    }
)
ENVIRONMENT = "os.environ/"
NO_KEYS = frozenset({"", "none", "empty", "null", "fake", "fake-key", "dummy", "not-needed", "anything"})
"""What is written in place of a key for servers that want none."""
RENAMED = MappingProxyType({"aws_region_name": "region"})
LIMITS = MappingProxyType({"rpm": "requests_per_min", "tpm": "tokens_per_min", "max_parallel_requests": "concurrency"})
PRICES = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost")
ROUTING = frozenset(
    {
        "drop_params", "additional_drop_params", "max_retries", "num_retries", "stream_timeout", "weight", "order", "tags",
        "stream", "cooldown_time", "use_in_pass_through", "max_budget", "budget_duration", "custom_llm_provider", "api_version",
        "model_info", *PRICES,
    }
)  # fmt: skip
"""Parameters about LiteLLM's own routing, or that are read elsewhere: no request has them."""
FROM_ENVIRONMENT = MappingProxyType(
    {
        "aws_access_key_id": "AWS_ACCESS_KEY_ID",
        "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
        "aws_session_token": "AWS_SESSION_TOKEN",
        "organization": "OPENAI_ORG_ID",
    }
)
"""What the SDK reads from the environment by itself, and from which variable."""
_OPENAI_NAME = re.compile(r"(gpt-|chatgpt-|o\d)")


def read_model_list(path: str | Path) -> tuple[list[Callable[[], Model]], dict[str, dict[str, Any]]]:
    """A maker for each entry (:class:`ConfigError` names what it cannot take over), and the settings by provider.

    Entries of one name are LiteLLM's load balancing; here each is a choice of its own: the second is called ``NAME-2``.
    """
    plain = _yaml(path)
    listed = plain.get("model_list") if isinstance(plain, dict) else None
    if not isinstance(listed, list) or not listed:
        raise ConfigError(f"{path}: has no model_list: is it a LiteLLM config?")
    read_on = date.fromtimestamp(Path(path).stat().st_mtime)
    makers: list[Callable[[], Model]] = []
    backends: dict[str, dict[str, Any]] = {}
    seen: dict[str, int] = {}
    for number, item in enumerate(listed, 1):
        if not isinstance(item, dict) or not isinstance(item.get("litellm_params"), dict):
            raise ConfigError(f"{path}: entry {number} of model_list has no litellm_params")
        name = str(item.get("model_name") or "?")
        seen[name] = seen.get(name, 0) + 1
        own = name if seen[name] == 1 else f"{name}-{seen[name]}"
        makers.append(partial(_model, item, own, str(path), read_on))
        _add_limits(item, own, backends)
    return makers, backends


def _yaml(path: str | Path) -> Any:
    import yaml  # type: ignore[import-untyped]

    try:
        return yaml.safe_load(catalog_text(path))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # the error's own text may quote a key
        where = f", line {mark.line + 1}" if mark is not None else ""
    raise ConfigError(f"{path}{where}: not valid YAML")


def _model(item: Mapping[str, Any], name: str, path: str, read_on: date) -> Model:
    params, info = dict(item["litellm_params"]), item.get("model_info") or {}
    label = f"{path}: model {name!r}"
    prefix, route, model_id = _route(params.pop("model", None), params, label)
    fields: dict[str, Any] = {"name": name, "provider": route.provider, "model": model_id, "engine": _engine(item, name, route)}
    fields["api_base"] = _base(params.pop("api_base", None) or params.pop("base_url", None), route, label)
    fields["api_key_env"] = _key_env(params.pop("api_key", None), route, fields["api_base"], label)
    if (timeout_s := params.pop("timeout", None) or params.pop("request_timeout", None)) is not None:
        fields["timeout_s"] = timeout_s
    for key in ("max_completion_tokens", "max_tokens"):
        if (limit := params.pop(key, None)) is not None:
            fields["max_tokens"] = limit
    fields |= _price({**info, **params}, f"{prefix}/{model_id}", label, path, read_on)
    _check_environment(params, label)
    fields["options"] = {
        RENAMED.get(key, key): _resolved(value, key, label) for key, value in params.items() if _is_option(key)
    }
    return entry({key: value for key, value in fields.items() if value is not None}, path)


def _route(model: Any, params: Mapping[str, Any], label: str) -> tuple[str, Route, str]:
    """The prefix, what it means here, and the model's id behind it."""
    if not isinstance(model, str) or not model:
        raise ConfigError(f"{label}: litellm_params has no model: write it as PROVIDER/MODEL, such as openai/gpt-4o")
    if "*" in model:
        raise ConfigError(f"{label}: {model!r} stands for many models, and each choice needs a price: list them one by one")
    prefix, slash, model_id = model.partition("/")
    if isinstance(params.get("custom_llm_provider"), str):
        prefix, model_id = params["custom_llm_provider"], model.removeprefix(f"{params['custom_llm_provider']}/")
    elif not slash and _OPENAI_NAME.match(model):
        prefix, model_id = "openai", model
    if prefix not in ROUTES or not model_id:
        known = ", ".join(ROUTES)
        raise ConfigError(
            f"{label}: unknown LiteLLM provider in {model!r}: known are {known}; leave the entry out, or write a TOML one"
        )
    return (
        prefix.removesuffix("_converse"),
        ROUTES[prefix],
        model_id.removeprefix("converse/") if prefix == "bedrock" else model_id,
    )


def _base(base: Any, route: Route, label: str) -> str | None:
    found = _resolved(base, "api_base", label) if base else route.api_base
    if found is None and route.needs_base:
        raise ConfigError(f"{label}: no api_base: say where its server is, such as http://localhost:8000/v1")
    return found if found is None else str(found)


def _key_env(key: Any, route: Route, base: str | None, label: str) -> str | None:
    """The variable of the key. Without one in the entry it is LiteLLM's default, if the entry calls that service."""
    if key is None:
        return route.key_env if base == route.api_base else None
    if isinstance(key, str) and key.startswith(ENVIRONMENT):
        return key.removeprefix(ENVIRONMENT)
    if str(key).lower() in NO_KEYS and base is not None:
        return None
    raise ConfigError(f"{label}: api_key holds the key itself: put it into an environment variable and write os.environ/NAME")


def _resolved(value: Any, key: str, label: str) -> Any:
    """A parameter's value, from the environment where it says ``os.environ/NAME``. Keys never come here."""
    if not isinstance(value, str) or not value.startswith(ENVIRONMENT):
        return value
    name = value.removeprefix(ENVIRONMENT)
    if not os.environ.get(name):
        raise ConfigError(f"{label}: {key}: environment variable {name} is not set")
    return os.environ[name]


def _check_environment(params: Mapping[str, Any], label: str) -> None:
    for key, name in FROM_ENVIRONMENT.items():
        if params.get(key) not in (None, f"{ENVIRONMENT}{name}"):
            raise ConfigError(f"{label}: {key} is only read from the environment: set {name} and write os.environ/{name}")


def _is_option(key: str) -> bool:
    return key not in ROUTING and key not in LIMITS and key not in FROM_ENVIRONMENT


def _price(known: Mapping[str, Any], price_id: str, label: str, path: str, read_on: date) -> dict[str, Any]:
    """From the entry, else from the bundled price file. ``as_of`` is the day on which the YAML was last written."""
    given = {key: known.get(name) for key, name in zip(("input", "output", "cached"), PRICES, strict=True)}
    if given["input"] is None or given["output"] is None:
        if price_id in bundled_prices():
            return {"price_id": price_id}
        raise ConfigError(
            f"{label}: no price known for {price_id!r}: add {PRICES[0]} and {PRICES[1]} (dollars) to its model_info"
        )
    try:
        per_mtok = {key: round(float(cost) * 1e6, 9) for key, cost in given.items() if cost is not None}
    except (TypeError, ValueError):
        raise ConfigError(f"{label}: {PRICES[0]} and {PRICES[1]} must be dollars, such as 2.5e-06") from None
    return {"price": {**per_mtok, "source": f"model_info in {Path(path).name}", "as_of": read_on}}


def _limits(item: Mapping[str, Any]) -> dict[str, int]:
    places = (item.get("litellm_params") or {}, item.get("model_info") or {}, item)
    found = {}
    for key, ours in LIMITS.items():
        value = next((place[key] for place in places if place.get(key) is not None), None)
        if value is not None:
            found[ours] = value
    return found


def _engine(item: Mapping[str, Any], name: str, route: Route) -> str | None:
    """LiteLLM limits each deployment by itself: one with limits is an engine of its own, others share their endpoint."""
    return f"{route.provider}/{name}" if _limits(item) else None


def _add_limits(item: Mapping[str, Any], name: str, backends: dict[str, dict[str, Any]]) -> None:
    limits = _limits(item)
    try:
        _, route, _ = _route(item["litellm_params"].get("model"), item["litellm_params"], name)
    except ConfigError:
        return  # its maker says so
    if limits:
        backends.setdefault(route.provider, {}).setdefault("limits", {})[_engine(item, name, route)] = limits
