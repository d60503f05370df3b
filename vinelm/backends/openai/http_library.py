"""The HTTP library that the installed openai SDK is built on: httpx, or its successor httpx2."""

from __future__ import annotations

import importlib
from typing import Any


def http_library() -> Any:
    """Return the module."""
    from openai import DefaultHttpxClient

    homes = [kind.__module__.partition(".")[0] for kind in DefaultHttpxClient.__mro__]
    return importlib.import_module(next(home for home in homes if home.startswith("httpx")))
