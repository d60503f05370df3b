"""Reads variables from ``.env`` files: next to the catalog, then in the working directory. Values are never printed or stored.

Only variables that models need are set: variables that the catalog names, and variables that providers' SDKs read. All others
stay out of the environment, so that programs started by this process do not see them. A variable that is already set, even to
an empty text, is never replaced. ``VINELM_DOTENV=0`` turns this off.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

SWITCH = "VINELM_DOTENV"
OFF = ("0", "false", "no", "off")
MAX_BYTES = 1_000_000
PROVIDER_VARIABLES = frozenset(
    {
        "AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_REGION",
        "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_API_VERSION", "FRIENDLI_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_PROJECT", "HF_TOKEN", "VERTEXAI_LOCATION", "VERTEXAI_PROJECT",
    }
)  # fmt: skip
"""Variables that providers read without being configured to, in addition to every ``..._API_KEY``."""
ADDRESSES = ("_API_BASE",)
"""Suffixes of variables with addresses. They decide where keys are sent, so they are only read from next to the catalog."""
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_lock = threading.Lock()
_taken: dict[str, str] = {}


def take_variables(folder: str | Path | None = None, text: str = "") -> None:
    """Set environment variables that models need and that are not set yet, from the ``.env`` files of this folder and the
    working directory.

    Args:
        folder: The folder of the catalog file; None if there is none.
        text: The text of the catalog file, which names variables.
    """
    if os.environ.get(SWITCH, "").strip().lower() in OFF:
        return
    named = set(_WORD.findall(text))
    folders = dict.fromkeys(Path(where).resolve() for where in (folder, Path.cwd()) if where is not None)
    for place in folders:
        path = place / ".env"
        is_beside = folder is not None and place == Path(folder).resolve()
        for name, value in _read(path).items():
            if name in named or _is_a_providers(name, is_beside=is_beside):
                _set(name, value, path)


def variables_of_files() -> Mapping[str, str]:
    """Return, for each variable that this process took from a ``.env`` file, the path of that file."""
    return MappingProxyType(_taken)


def _is_a_providers(name: str, *, is_beside: bool) -> bool:
    return name in PROVIDER_VARIABLES or name.endswith("_API_KEY") or (is_beside and name.endswith(ADDRESSES))


def _set(name: str, value: str, path: Path) -> None:
    with _lock:
        if name not in os.environ:
            os.environ[name] = value
            _taken[name] = str(path)


def _read(path: Path) -> Mapping[str, str]:
    """Return the variables of a file; empty if it is missing. An unreadable file causes a warning without its content."""
    from dotenv import dotenv_values

    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return {}
        found = dotenv_values(path, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        logging.getLogger(__name__).warning("%s: cannot be read: %s", path, type(error).__name__)
        return {}
    return {name: value for name, value in found.items() if value is not None and "\0" not in value}
