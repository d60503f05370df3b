"""The HTTP library that the installed openai SDK uses: httpx, or its successor httpx2."""

from __future__ import annotations

from typing import Any

from vinelm.backends.remote.answer_size import library_of


def http_library() -> Any:
    """Return the module httpx, or httpx2 if the installed SDK uses that."""
    from openai import DefaultHttpxClient

    return library_of(DefaultHttpxClient)
