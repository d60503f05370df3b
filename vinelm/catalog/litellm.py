"""An existing LiteLLM ``model_list`` as a catalog, unchanged.

Format: https://docs.litellm.ai/docs/proxy/configs. Settings of LiteLLM's proxy and router are ignored, because VineLM replaces
them, and a note lists them. Of the rest of the file only ``num_retries`` and the default timeout are used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from vinelm.catalog.litellm_keys import (
    AZURE_V1,
    FROM_ENVIRONMENT,
    LIMITS,
    OTHER_CREDENTIALS,
    PRICES,
    RENAMED,
    Route,
    is_left_out,
    is_option,
    route_of,
)
from vinelm.catalog.model import Model, bundled_prices, entry
from vinelm.errors import ConfigError

ENVIRONMENT = "os.environ/"
NO_KEYS = frozenset({"", "none", "empty", "null", "fake", "fake-key", "dummy", "not-needed", "anything"})
"""Placeholders for the key of servers that need none."""
SETTINGS = ("litellm_settings", "router_settings")
TAKEN = ("num_retries", "request_timeout", "timeout")
"""The keys of these sections that are used."""


class ModelList(NamedTuple):
    """What a file with a ``model_list`` holds.

    Args:
        makers: A function for each entry that returns its model, or raises :class:`ConfigError` if it cannot be used.
        backends: Settings by provider.
        notes: One line that lists the keys without effect, if there are any.
    """

    makers: list[Callable[[], Model]]
    backends: dict[str, dict[str, Any]]
    notes: tuple[str, ...]


class _File(NamedTuple):
    """What the entries of one file share. ``read_on``: the day on which the file was last modified."""

    path: str
    read_on: date
    timeout_s: Any


def read_model_list(path: str | Path, text: str) -> ModelList:
    """Read the ``model_list`` of a LiteLLM config.

    Entries of the same name, which LiteLLM balances load between, become models of their own: the second is ``NAME-2``.

    Args:
        path: The file, for errors and for the date of its prices.
        text: Its content.

    Raises:
        ConfigError: The file is not YAML, has no ``model_list``, or includes other files.
    """
    plain = _yaml(path, text)
    listed = plain.get("model_list") if isinstance(plain, dict) else None
    if not isinstance(listed, list) or not listed:
        raise ConfigError(f"{path}: has no model_list: is it a LiteLLM config?")
    if plain.get("include"):
        raise ConfigError(f"{path}: include is not supported: copy the entries of those files into this model_list")
    file = _File(str(path), date.fromtimestamp(Path(path).stat().st_mtime), _setting(plain, "timeout", "request_timeout"))
    found = ModelList([], {}, ())
    seen: dict[str, int] = {}
    without_effect = list(_left_out_of_file(plain))
    for number, item in enumerate(listed, 1):
        if not isinstance(item, dict) or not isinstance(item.get("litellm_params"), dict):
            raise ConfigError(f"{path}: entry {number} of model_list has no litellm_params")
        name = str(item.get("model_name") or "?")
        seen[name] = seen.get(name, 0) + 1
        own = name if seen[name] == 1 else f"{name}-{seen[name]}"
        found.makers.append(partial(_model, item, own, file))
        _add_settings(item, own, _setting(plain, "num_retries"), found.backends)
        without_effect += [f"{own}.{key}" for key in item["litellm_params"] if _has_no_effect(str(key), item["litellm_params"])]
    if not without_effect:
        return found
    return found._replace(notes=(f"{path}: has no effect here (see docs/providers.md): {', '.join(without_effect)}",))


def _yaml(path: str | Path, text: str) -> Any:
    import yaml  # type: ignore[import-untyped]

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # the error's own text may quote a key
        where = f", line {mark.line + 1}" if mark is not None else ""
    raise ConfigError(f"{path}{where}: not valid YAML")


def _section(plain: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = plain.get(name)
    return found if isinstance(found, Mapping) else {}


def _setting(plain: Mapping[str, Any], *names: str) -> Any:
    """The router's setting takes precedence over the library's."""
    places = [_section(plain, section).get(name) for section in reversed(SETTINGS) for name in names]
    return next((value for value in places if value is not None), None)


def _left_out_of_file(plain: Mapping[str, Any]) -> Iterator[str]:
    for name in plain:
        if name in SETTINGS:
            yield from (f"{name}.{key}" for key in _section(plain, name) if key not in TAKEN)
        elif name != "model_list":
            yield str(name)


def _has_no_effect(key: str, params: Mapping[str, Any]) -> bool:
    if key == "api_version":
        return not str(params.get("model", "")).startswith("azure/") and params.get("custom_llm_provider") != "azure"
    return is_left_out(key) and params[key] is not None


def _model(item: Mapping[str, Any], name: str, file: _File) -> Model:
    params, info = dict(item["litellm_params"]), item.get("model_info") or {}
    label = f"{file.path}: model {name!r}"
    prefix, route, model_id = route_of(params.pop("model", None), params, label)
    _check_credentials(params, label)
    fields: dict[str, Any] = {"name": name, "provider": route.provider, "model": f"{route.prefix}{model_id}"}
    fields["engine"] = _engine(item, name, route)
    fields["api_base"] = _base(params, route, label)
    fields["api_key_env"] = _key_env(params.pop("api_key", None), route, fields["api_base"], label)
    fields["timeout_s"] = params.pop("timeout", None) or params.pop("request_timeout", None) or file.timeout_s
    for key in ("max_completion_tokens", "max_tokens"):
        if (limit := params.pop(key, None)) is not None:
            fields["max_tokens"] = limit
    fields |= _price({**info, **params}, f"{prefix}/{model_id}", label, file)
    options = {RENAMED.get(key, key): _resolved(value, key, label) for key, value in params.items() if is_option(key)}
    fields["options"] = {**_place(route), **options, **_azure_version(params, route, label)}
    return entry({key: value for key, value in fields.items() if value is not None}, file.path)


def _place(route: Route) -> dict[str, str]:
    """LiteLLM's environment variables for Vertex AI; without them the client reads Google's."""
    names = {"project": "VERTEXAI_PROJECT", "location": "VERTEXAI_LOCATION"} if route.provider == "vertex" else {}
    return {key: os.environ[name] for key, name in names.items() if os.environ.get(name)}


def _azure_version(params: Mapping[str, Any], route: Route, label: str) -> dict[str, str]:
    if route.provider != "azure":
        return {}
    version = _resolved(params.get("api_version"), "api_version", label) or os.environ.get("AZURE_API_VERSION")
    if not version:
        raise ConfigError(f"{label}: no api_version: add it, or set AZURE_API_VERSION")
    return {"api_version": str(version)}


def _base(params: dict[str, Any], route: Route, label: str) -> str | None:
    names = ("api_base", "base_url", "aws_bedrock_runtime_endpoint")
    given = [value for value in (params.pop(name, None) for name in names) if value]
    found = _resolved(given[0], "api_base", label) if given else route.api_base or os.environ.get(route.base_env or "")
    if not found and route.needs_base:
        where = f", or set {route.base_env}" if route.base_env else ", such as http://localhost:8000/v1"
        raise ConfigError(f"{label}: no api_base: add the URL of its server{where}")
    if params.get("api_version") in AZURE_V1 and route.base_env:
        return f"{str(found).rstrip('/').removesuffix('/openai/v1')}/openai/v1"
    return str(found) if found else None


def _key_env(key: Any, route: Route, base: str | None, label: str) -> str | None:
    """The environment variable of the key; by default LiteLLM's, if the entry calls that service."""
    if route.provider == "langchain":
        if key not in (None, f"{ENVIRONMENT}{route.key_env}"):
            raise ConfigError(f"{label}: its LangChain package reads the key from {route.key_env}: set that variable")
        return None
    if key is None:
        return route.key_env if base == route.api_base or route.base_env else None
    if isinstance(key, str) and key.startswith(ENVIRONMENT):
        return key.removeprefix(ENVIRONMENT)
    if str(key).lower() in NO_KEYS and base is not None:
        return None
    raise ConfigError(f"{label}: api_key holds the key itself: put it into an environment variable and write os.environ/NAME")


def _resolved(value: Any, key: str, label: str) -> Any:
    """The value of a parameter that is not a key, read from the environment if it is ``os.environ/NAME``."""
    if not isinstance(value, str) or not value.startswith(ENVIRONMENT):
        return value
    name = value.removeprefix(ENVIRONMENT)
    if not os.environ.get(name):
        raise ConfigError(f"{label}: {key}: environment variable {name} is not set")
    return os.environ[name]


def _check_credentials(params: Mapping[str, Any], label: str) -> None:
    for key, name in FROM_ENVIRONMENT.items():
        is_secret = key.endswith(("key", "key_id", "token"))
        if params.get(key) not in (None, f"{ENVIRONMENT}{name}", None if is_secret else os.environ.get(name)):
            raise ConfigError(f"{label}: {key} is only read from the environment: set {name} and write os.environ/{name}")
    for key in sorted(OTHER_CREDENTIALS & set(params)):
        if params[key] is not None:
            raise ConfigError(f"{label}: {key} is not supported: give the entry an api_key, or credentials in the environment")


def _price(known: Mapping[str, Any], price_id: str, label: str, file: _File) -> dict[str, Any]:
    """The entry's price, dated by the file, else that of the bundled price file, by ``base_model`` if there is one."""
    given = {key: known.get(name) for key, name in zip(("input", "output", "cached"), PRICES, strict=True)}
    if given["input"] is None or given["output"] is None:
        base = known.get("base_model")
        wanted = [base, f"openai/{base}", price_id] if isinstance(base, str) else [price_id]
        for candidate in wanted:
            if candidate in bundled_prices():
                return {"price_id": candidate}
        raise ConfigError(
            f"{label}: no price known for {wanted[0]!r}: add {PRICES[0]} and {PRICES[1]} (dollars) to its model_info"
        )
    try:
        per_mtok = {key: round(float(cost) * 1e6, 9) for key, cost in given.items() if cost is not None}
    except (TypeError, ValueError):
        raise ConfigError(f"{label}: {PRICES[0]} and {PRICES[1]} must be dollars, such as 2.5e-06") from None
    return {"price": {**per_mtok, "source": f"model_info in {Path(file.path).name}", "as_of": file.read_on}}


def _limits(item: Mapping[str, Any]) -> dict[str, int]:
    places = (item.get("litellm_params") or {}, item.get("model_info") or {}, item)
    found = {}
    for key, ours in LIMITS.items():
        value = next((place[key] for place in places if place.get(key) is not None), None)
        if value is not None:
            found[ours] = value
    return found


def _engine(item: Mapping[str, Any], name: str, route: Route) -> str | None:
    """LiteLLM limits each deployment separately: an entry with limits is an engine of its own, others share their endpoint."""
    return f"{route.provider}/{name}" if _limits(item) else None


def _add_settings(item: Mapping[str, Any], name: str, retries: Any, backends: dict[str, dict[str, Any]]) -> None:
    limits = _limits(item)
    try:
        _, route, _ = route_of(item["litellm_params"].get("model"), item["litellm_params"], name)
    except ConfigError:
        return  # its maker raises this error
    if retries is not None:
        backends.setdefault(route.provider, {})["max_retries"] = retries
    if limits:
        backends.setdefault(route.provider, {}).setdefault("limits", {})[_engine(item, name, route)] = limits
