"""The options of one call: those of the catalog entry, overridden by the call's own."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from vinelm.catalog import Model
from vinelm.errors import ConfigError


class CallOptions(NamedTuple):
    """The options of one call.

    ``limit`` is the maximum of output tokens; ``tools`` is None if there are none or they must not be used; ``rest`` holds
    provider-specific options.
    """

    limit: int
    tools: Any
    choice: Any
    rest: dict[str, Any]


def asked_of(model: Model, own: Mapping[str, Any], options: Mapping[str, Any], ours: Container[str]) -> CallOptions:
    """Merge the call's ``options`` over the entry's ``own``.

    Raises:
        ConfigError: An option is one of ``ours``, or ``max_tokens`` is above the entry's.
    """
    given = {**own, **{key: value for key, value in options.items() if value is not None}}
    tools, choice = given.pop("tools", None), given.pop("tool_choice", None)
    limit = given.pop("max_tokens", model.max_tokens) if "max_tokens" not in own else None
    if not isinstance(limit, int) or not 1 <= limit <= model.max_tokens:
        raise ConfigError(f"model {model.name!r}: max_tokens is the entry's, {model.max_tokens}: a call may only ask for less")
    refuse_ours(model, given, ours)
    return CallOptions(limit, tools if tools and choice not in ("none", False) else None, choice, given)


def refuse_ours(model: Model, options: Mapping[str, Any], ours: Container[str]) -> None:
    """Raise :class:`ConfigError` for an option that the backend sets itself."""
    for key in options:
        if key in ours:
            raise ConfigError(f"model {model.name!r}: option {key!r} is set by VineLM: leave it out")
