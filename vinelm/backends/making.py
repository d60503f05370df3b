"""Creates chat models of LangChain's packages from catalog entries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel

from vinelm.catalog import Model
from vinelm.errors import ConfigError
from vinelm.foreign_code import explained

C = TypeVar("C", bound=BaseChatModel)

OURS = (
    "model", "model_name", "messages", "stream", "streaming", "n", "timeout", "request_timeout", "max_retries", "retries",
    "api_key", "base_url", "max_tokens", "max_completion_tokens", "max_output_tokens", "http_client", "http_async_client",
    "callbacks", "cache", "rate_limiter",
)  # fmt: skip
"""Options that the entry's own fields set, or that would change how a call is metered."""
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


def check_options(model: Model, *more: str) -> None:
    """Raise :class:`ConfigError` if the entry has an option that VineLM sets itself, or one of the options ``more``."""
    for key in model.options:
        if key in _LIMITS:
            raise ConfigError(f"model {model.name!r}: option {key!r}: set the entry's max_tokens instead")
        if key in OURS or key in more:
            raise ConfigError(f"model {model.name!r}: option {key!r} is set by VineLM: leave it out")


def check_base(model: Model, hint: str = "it must start with http:// or https://") -> None:
    """Raise :class:`ConfigError` if ``api_base`` is not a URL. ``hint`` ends the message."""
    if model.api_base is not None and not model.api_base.startswith(("http://", "https://")):
        raise ConfigError(f"model {model.name!r}: api_base is {model.api_base!r}: {hint}")


def made(entry: Model, kind: Callable[..., C], /, **settings: Any) -> C:
    """Return a new chat model of the class ``kind`` with these settings.

    Raises :class:`ConfigError` if the class refuses the settings. Its own message is left out, because it may quote a key.
    """
    mend = f"do its options fit the package of {entry.provider!r}?"
    with explained(lambda error: cannot_make(entry, error, mend), passes=(ConfigError,), hides=True):
        return kind(**settings)


def cannot_make(entry: Model, error: Exception, mend: str) -> ConfigError:
    """Return the error for a catalog entry whose chat model raised this exception on creation; ``mend`` says what to do about
    it.
    """
    return ConfigError(f"model {entry.name!r}: cannot be made ({type(error).__name__}): {mend}")


def split_options(options: Mapping[str, Any], kind: type[BaseChatModel]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into settings that the chat model class ``kind`` has and parameters that only the server knows."""
    known = {name for field, info in kind.model_fields.items() for name in (field, info.alias) if name}
    settings = {key: value for key, value in options.items() if key in known}
    return settings, {key: value for key, value in options.items() if key not in known}


def keep_quiet(*names: str) -> None:
    """Drop the debug and info records of these loggers, which contain whole requests; keep warnings and errors."""
    for name in names:
        logger = logging.getLogger(name)
        if _is_loud not in logger.filters:
            logger.addFilter(_is_loud)


def _is_loud(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
