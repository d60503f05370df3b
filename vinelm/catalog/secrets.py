"""Keep secrets out of catalogs and out of messages."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vinelm.errors import ConfigError

if TYPE_CHECKING:
    from vinelm.catalog.model import Model

_SECRET_KEY = re.compile(
    r"(^|_)((api|access|secret|private|auth|account|subscription)_?key"
    r"|secret|password|passwd|passphrase|authorization|credentials?|bearer|cookie|token)(_id)?$"
)


_NO_SECRET = re.compile(r"(^|_)(bos|eos|pad|unk|sep|stop|end|mask)_token(_id)?$|_env$")


_URL_WITH_PASSWORD = re.compile(r"^[a-z][a-z0-9+.-]*://[^/\s]*:[^/\s]*@", re.IGNORECASE)


def refuse_secrets(models: tuple[Model, ...], backends: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise :class:`ConfigError`, without the value, if an entry or a setting holds a secret: catalogs are stored on disk."""
    places: list[tuple[str, Any]] = [(f"model {model.name!r}: options", model.options) for model in models]
    places += [(f"model {model.name!r}: api_base", model.api_base) for model in models]
    places += [(f"[backend.{name}]", settings) for name, settings in backends.items()]
    for where, value in places:
        found = _secret_in(value)
        if found is not None:
            raise ConfigError(
                f"{where}: {found or 'the URL'} holds a secret, and catalogs are stored on disk: "
                "put it into an environment variable and name the variable in api_key_env"
            )


def _secret_in(value: Any) -> str | None:
    """The key that holds a secret, in quotes; empty if only the value shows it; None if there is none."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            name = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(key)).lower())
            if _SECRET_KEY.search(name) and not _NO_SECRET.search(name) and not isinstance(inner, bool | None):
                return repr(str(key))
            found = _secret_in(inner)
            if found is not None:
                return found or repr(str(key))
    elif isinstance(value, list | tuple):
        return next((found for found in map(_secret_in, value) if found is not None), None)
    elif isinstance(value, str) and (_URL_WITH_PASSWORD.search(value) or value.startswith(("Bearer ", "Basic "))):
        return ""
    return None


_SECRET_VARIABLES = ("KEY", "TOKEN", "SECRET", "PASSWORD")


def redacted(text: str) -> str:
    """Return ``text`` with the values of secret-looking environment variables replaced by their names.

    The message of a provider may quote an API key.
    """
    for name, value in os.environ.items():
        if len(value) >= 8 and name.upper().endswith(_SECRET_VARIABLES):
            text = text.replace(value, f"${name}")
    return text
