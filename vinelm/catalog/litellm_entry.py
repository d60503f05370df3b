"""Converts one entry of a LiteLLM ``model_list`` to a model of a catalog."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from vinelm.catalog.entries import entry
from vinelm.catalog.litellm_keys import (
    FROM_ENVIRONMENT,
    HEADERS,
    LIMITS,
    NAMES_OF_THE_CALLER,
    OTHER_CREDENTIALS,
    RENAMED,
    in_words_of,
    is_option,
)
from vinelm.catalog.litellm_prices import Priced, price_of
from vinelm.catalog.litellm_routes import Called, Route, is_private, route_of
from vinelm.catalog.model import Model
from vinelm.errors import ConfigError

ENVIRONMENT = "os.environ/"
AZURE_VERSION = "2025-02-01-preview"
"""LiteLLM's default ``api_version``."""
CLAUDE_MAX_TOKENS = 4096
"""LiteLLM's default limit for models of Anthropic, thinking not included."""
_PLACEHOLDER = re.compile(
    r"|(sk-)?(none|empty|null|no-?key(-required)?|not-?(needed|used|required)|anything|any|ollama|lm-?studio|vllm|test|1234|x+)"
    r"|.*(fake|dummy|placeholder|not-needed|no-key|local).*",
    re.I,
)
"""What people write as the key for a server that needs none."""
SHORTEST_SECRET = 8
"""The minimum length of a text that is considered a secret."""
_VARIABLE = re.compile(r"os\.environ/(.+)|\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")


class ListFile(NamedTuple):
    """Facts about a LiteLLM file that apply to all its entries.

    Attributes:
        path: The file, as text.
        read_on: The day on which the file was last modified, which dates its prices.
        timeout_s: The file's time limit of a call, for entries that set none.
    """

    path: str
    read_on: date
    timeout_s: Any


def model_of(item: Mapping[str, Any], name: str, file: ListFile) -> Model:
    """Convert an entry of a LiteLLM ``model_list`` to a :class:`Model` called ``name``.

    Raise :class:`ConfigError` if the model cannot be called, or its price is not known.
    """
    params, info = dict(item["litellm_params"]), item.get("model_info") or {}
    label = f"{file.path}: model {name!r}"
    called = route_of(_resolved(params.pop("model", None), "model", label), params, label)
    _check_credentials(params, label)
    _check_headers(params, label)
    route = called.route
    fields: dict[str, Any] = {"name": name, "provider": route.provider, "model": f"{route.prefix}{called.model_id}"}
    fields["engine"] = engine_of(item, name, route)
    is_elsewhere = bool(params.get("api_base") or params.get("base_url")) and not route.needs_base
    fields["api_base"] = base = _base(params, called, label)
    has_no_key = params.get("api_key") is not None and _is_placeholder(params["api_key"], base)
    fields["api_key_env"] = _key_env(params.pop("api_key", None), route, base, label, is_elsewhere=is_elsewhere)
    fields["timeout_s"] = params.pop("timeout", None) or params.pop("request_timeout", None) or file.timeout_s
    for key in ("max_completion_tokens", "max_tokens"):
        if (limit := params.pop(key, None)) is not None:
            fields["max_tokens"] = limit
    known = {**(info if isinstance(info, Mapping) else {}), **params}
    model_name, file_name = str(item.get("model_name")), Path(file.path).name
    fields["options"] = {**_place(called), **_options(called, params, label), **_azure_version(params, route, label)}
    options = fields["options"]
    fields |= price_of(Priced(called, base, has_no_key, model_name, known, options, file_name, file.read_on, label))
    if route.provider == "anthropic":
        fields.setdefault("max_tokens", CLAUDE_MAX_TOKENS + _thinking_tokens(fields["options"]))
    return entry({key: value for key, value in fields.items() if value is not None}, file.path)


def limits_of(item: Mapping[str, Any]) -> dict[str, int]:
    """Return the rate limits of an entry, with the keys ``requests_per_min``, ``tokens_per_min`` and ``concurrency`` as far as
    they are set.
    """
    places = (item.get("litellm_params") or {}, item.get("model_info") or {}, item)
    found = {}
    for key, ours in LIMITS.items():
        value = next((place[key] for place in places if isinstance(place, Mapping) and place.get(key) is not None), None)
        if value is not None:
            found[ours] = value
    return found


def engine_of(item: Mapping[str, Any], name: str, route: Route) -> str | None:
    """Return the engine name for an entry with rate limits; None for an entry without limits.

    Each such entry gets a separate engine, because LiteLLM limits each deployment separately.
    """
    return f"{route.provider}/{name}" if limits_of(item) else None


def _options(called: Called, params: Mapping[str, Any], label: str) -> dict[str, Any]:
    options = {RENAMED.get(key, key): _resolved(value, key, label) for key, value in params.items() if is_option(key)}
    body = params.get("extra_body")
    if isinstance(body, Mapping):
        options |= body
    return in_words_of(called.route.provider, called.model_id, options)


def _place(called: Called) -> dict[str, str]:
    """Return the options that state where the model runs: ``project`` and ``location`` for Google's models, ``region`` for AWS;
    empty for others.

    Project and location are read here from LiteLLM's environment variables, because the client of Vertex AI only reads Google's
    variables.
    """
    is_google = called.route.provider == "vertex" or called.prefix == "vertex_ai"
    names = {"project": "VERTEXAI_PROJECT", "location": "VERTEXAI_LOCATION"} if is_google else {}
    found = {key: os.environ[name] for key, name in names.items() if os.environ.get(name)}
    return found if called.region is None else {"region": called.region}


def _azure_version(params: Mapping[str, Any], route: Route, label: str) -> dict[str, str]:
    if route.provider != "azure":
        return {}
    given = _resolved(params.get("api_version"), "api_version", label)
    return {"api_version": str(given or os.environ.get("AZURE_API_VERSION") or AZURE_VERSION)}


def _base(params: dict[str, Any], called: Called, label: str) -> str | None:
    names, route = ("api_base", "base_url", "aws_bedrock_runtime_endpoint"), called.route
    given = [value for value in (params.pop(name, None) for name in names) if value]
    found = _resolved(given[0], "api_base", label) if given else os.environ.get(route.base_env or "") or route.api_base
    if not found and route.needs_base:
        where = f", or set {route.base_env}" if route.base_env else ", such as http://localhost:8000/v1"
        raise ConfigError(f"{label}: no api_base: add the URL of its server{where}")
    if not found:
        return None
    url = str(found)
    if "/publishers/" in url:  # the URL of one model on Vertex AI, which its client builds from the project and the location
        return None
    if route.provider == "openai" and called.prefix == "azure":
        return f"{url.rstrip('/').removesuffix('/openai/v1')}/openai/v1"
    if called.prefix == "azure_ai":
        return _azure_ai(url, route)
    for ending in ("/chat/completions", "/v1/messages"):
        url = url.removesuffix("/").removesuffix(ending) if url.rstrip("/").endswith(ending) else url
    return url if not route.path or url.rstrip("/").endswith(route.path) else f"{url.rstrip('/')}{route.path}"


def _azure_ai(url: str, route: Route) -> str:
    """Return the URL for chat completions on the server of ``url``, the Azure AI address of an entry.

    Its path is that of ``route`` if the route has one. Otherwise it is ``/openai/v1`` for a Foundry resource, and ``/v1`` for a
    separate model server.
    """
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}"
    if route.path:
        return f"{root}{route.path}"
    is_resource = parts.netloc.endswith((".services.ai.azure.com", ".openai.azure.com", ".cognitiveservices.azure.com"))
    return f"{root}/openai/v1" if is_resource else f"{root}/v1"


def _key_env(key: Any, route: Route, base: str | None, label: str, *, is_elsewhere: bool) -> str | None:
    """Return the environment variable of an entry's API key; None if no key is needed.

    Args:
        key: The entry's ``api_key``. None takes LiteLLM's default variable for the provider, unless the entry calls a server
            other than the provider's own.
        route: The entry's provider.
        base: The entry's URL; None if it names none.
        label: The entry's name in error messages.
        is_elsewhere: Whether the entry names a URL although its provider has a default URL.

    Raises:
        ConfigError: The file has the key itself.
    """
    if key is None:
        if route.is_own_server and not os.environ.get(route.key_env or ""):
            return None
        return None if is_elsewhere and base != route.api_base else route.key_env
    named = _VARIABLE.fullmatch(key) if isinstance(key, str) else None
    if named is not None:
        return named[1] or named[2]
    if base is not None and _is_placeholder(key, base):
        return None
    raise ConfigError(f"{label}: api_key holds the key itself: put it into an environment variable and write os.environ/NAME")


def _is_placeholder(key: Any, base: str | None) -> bool:
    """Return whether ``key`` is a placeholder instead of a real key: it looks like one, or it is short and the server is
    private.
    """
    is_short = isinstance(key, str) and len(key) < SHORTEST_SECRET and not _VARIABLE.fullmatch(key)
    return _PLACEHOLDER.fullmatch(str(key)) is not None or (is_short and base is not None and is_private(base))


def _resolved(value: Any, key: str, label: str) -> Any:
    """Return the value of a parameter. A value ``os.environ/NAME`` or ``${NAME}`` is replaced by that environment variable's
    value.

    Raise :class:`ConfigError` if the variable is not set. ``key`` is the parameter's name and ``label`` the entry's, for the
    message.
    """
    named = _VARIABLE.fullmatch(value) if isinstance(value, str) else None
    if named is None:
        return value
    name = named[1] or named[2]
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


def _check_headers(params: Mapping[str, Any], label: str) -> None:
    """Raise :class:`ConfigError` for headers that would change the call; headers that identify the caller are ignored."""
    for key in HEADERS:
        given = params.get(key)
        for name in given if isinstance(given, Mapping) else ():
            if not NAMES_OF_THE_CALLER.fullmatch(str(name)):
                raise ConfigError(f"{label}: {key}: the header {str(name)!r} cannot be sent: leave it out, or the entry")


def _thinking_tokens(options: Mapping[str, Any]) -> int:
    thinking = options.get("thinking")
    budget = thinking.get("budget_tokens", 0) if isinstance(thinking, Mapping) else 0
    return budget if isinstance(budget, int) else 0
