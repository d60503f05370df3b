"""The TLS context that all clients of a process share: reading the certificates takes 20 to 40 ms."""

from __future__ import annotations

import ssl
from functools import cache
from importlib import import_module


@cache
def tls_context(library: str) -> ssl.SSLContext:
    """Return the context that ``httpx`` or ``httpx2`` would make for each client of its own. Forked processes inherit it."""
    made: ssl.SSLContext = import_module(library).create_ssl_context()
    return made
