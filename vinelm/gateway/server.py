"""Serves a gateway with uvicorn until stopped."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

from vinelm.adapters.langchain.openai_form import error_body
from vinelm.errors import ConfigError
from vinelm.extras import required_extra
from vinelm.gateway.app import LIMITS, Gateway

with required_extra("gateway", "the gateway"):
    import uvicorn

    from vinelm.http_limits import HttpLimits, bounded_protocol

GRACE_S = 30
"""Seconds that calls in progress may still take once the gateway is told to stop."""


def serve(gateway: Gateway, host: str, port: int, *, on_listening: Callable[[str], None], limits: HttpLimits = LIMITS) -> None:
    """Serve the gateway over HTTP until SIGINT or SIGTERM, then finish calls in flight. Must run in the main thread.

    Args:
        gateway: The gateway to serve.
        host: The address to listen on. Any address except the loopback interface needs keys.
        port: 0 picks a free port.
        on_listening: Called with the URL once the server listens.
        limits: The resources that a client may use.

    Raises:
        ConfigError: The server cannot or may not listen at this address.
    """
    if gateway.keys is None and not _is_loopback(host):
        raise ConfigError(
            f"on {host} everybody could spend your money: make a key first, `vinelm keys add NAME`, or listen on 127.0.0.1"
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on {host}, port {port}: {error}") from None
    with listening:
        server = uvicorn.Server(server_config(gateway, limits))
        shown = f"[{host}]" if ":" in host else host
        on_listening(f"http://{shown}:{listening.getsockname()[1]}/v1")
        server.run(sockets=[listening])


def server_config(gateway: Any, limits: HttpLimits) -> uvicorn.Config:
    """Return uvicorn's settings for serving the application ``gateway`` within ``limits``."""
    return uvicorn.Config(
        gateway,
        http=bounded_protocol(limits, error_body),
        ws="none",
        loop="asyncio",
        lifespan="on",
        h11_max_incomplete_event_size=limits.head_bytes,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE_S,
        server_header=False,
        access_log=False,
        log_config=None,
        log_level="critical",  # requests hold prompts
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
