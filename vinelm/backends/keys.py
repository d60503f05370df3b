"""Reads the API keys of catalog entries from environment variables.

A catalog entry names the variable, which is read when a client is created.
"""

from __future__ import annotations

import os

from vinelm.catalog import Model
from vinelm.errors import ConfigError

NO_KEY = "none"
"""The key sent to a server that needs none, instead of one that a package finds in the environment."""


def named_key(model: Model, example: str) -> str:
    """Return the key from the entry's environment variable; ``example`` is a variable's name for the error message.

    Raises :class:`ConfigError` if the entry names no variable, or if the variable is not set.
    """
    if model.api_key_env is None:
        raise ConfigError(f'model {model.name!r}: no api_key_env: name the variable of the key, such as "{example}"')
    key = os.environ.get(model.api_key_env, "").strip()
    if not key:
        raise ConfigError(f"model {model.name!r}: environment variable {model.api_key_env} is not set: put the API key there")
    return key


def own_or_no_key(model: Model, example: str) -> str:
    """Return the entry's API key. If the entry sets ``api_base`` and names no variable for a key, return a placeholder instead.

    ``example`` is a variable's name for the error message.
    """
    if model.api_key_env is None and model.api_base is not None:
        return NO_KEY
    return named_key(model, example)
