"""The meaning of an SDK's exception for its request: whether it was sent, and whether it may be billed."""

from __future__ import annotations

from collections.abc import Iterator

from vinelm.backends.remote.retry import AttemptFailed

_UNSENT = frozenset(
    {
        "ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "LocalProtocolError", "ProxyError",
        "ClientConnectorError", "ConnectTimeoutError", "EndpointConnectionError", "NameResolutionError", "NewConnectionError",
        "ProxyConnectionError", "ConnectionRefusedError", "gaierror", "SSLCertVerificationError",
    }
)  # fmt: skip
"""Errors of httpx, urllib3, botocore, aiohttp and the standard library before anything of a request is sent."""
_WORKED_ON = (408, 424, 499)
"""Statuses of the client's range with which a server gives up a request that it may have worked on."""
_TURNED_DOWN = (501, 505, 529)
"""Statuses of the server's range with which it turns a request down. 503 does, too, where the API itself says so."""
_MOST_LINKS = 32


def own_failure(error: BaseException) -> AttemptFailed | None:
    """Return the failure that our own HTTP transport raised, if the SDK's ``error`` wraps one."""
    return next((link for link in _chain(error) if isinstance(link, AttemptFailed)), None)


def was_sent(error: BaseException) -> bool:
    """Return False if nothing of the request reached the server for certain: no address, no connection, no handshake."""
    return not any(base.__name__ in _UNSENT for link in _chain(error) for base in type(link).__mro__)


def status_may_be_billed(status: object, *, is_api_error: bool = True) -> bool:
    """Return whether a response with that HTTP status may be billed.

    ``is_api_error``: its body is an error of the API, not a page that any gateway on the way could have written. A gateway
    answers 500, 502 or 504 although the server behind it may have worked and charged; a refusal (400, 401, 429, ...) is free.
    """
    if not isinstance(status, int):
        return True
    if 300 <= status < 500:
        return status in _WORKED_ON
    return not (status in _TURNED_DOWN or (status == 503 and is_api_error))


def unforeseen(error: Exception) -> AttemptFailed:
    """Return the failure for what an SDK raises on an answer that it did not foresee, such as JSON nested too deeply."""
    return AttemptFailed("malformed", f"the server's answer cannot be parsed ({type(error).__name__})")


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    # Bounded, since causes may refer to each other in a circle.
    for _ in range(_MOST_LINKS):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__
