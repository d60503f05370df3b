"""Transports for httpx clients, with limits on the time and size of a response, and without redirects.

The openai SDK is built on httpx or, in newer versions, on its fork httpx2 with the same interface. So the library is an
argument here (``httpx``), and its counterpart httpcore or httpcore2 is found by name.
"""

from __future__ import annotations

import importlib
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import Any
from urllib.request import getproxies, proxy_bypass

from vinelm.backends.http.answer_body import ACCEPTED, AnswerBody, BodyLimits
from vinelm.backends.http.deadline import CONNECT_TIMEOUT_S, NO_LIMIT_S, Deadline, DeadlineBackend
from vinelm.backends.remote.retry import AttemptFailed

MAX_CONNECTIONS = 1000
KEPT_CONNECTIONS = 256
KEPT_S = 4.0
"""Seconds that an idle connection is kept: common servers (uvicorn: 5 s) close theirs later, not while a request is sent."""
DEADLINE = "vinelm_deadline"
"""Key of the :class:`Deadline` in a response's ``extensions``."""


@cache
def tls_context(library: str) -> ssl.SSLContext:
    """Return the context that ``httpx`` or ``httpx2`` would make for each client of its own.

    All clients of a process share it, and forked ones inherit it: reading the certificates takes 20 to 40 ms.
    """
    made: ssl.SSLContext = importlib.import_module(library).create_ssl_context()
    return made


class _Bounded:
    """The common part of both transports: one connection pool for each proxy."""

    def __init__(self, httpx: Any, limits: BodyLimits, ca_file: str | None = None) -> None:
        self._httpx = httpx
        self._limits = limits
        self._tls = tls_context(httpx.__name__) if ca_file is None else ssl.create_default_context(cafile=ca_file)
        self._proxies: dict[tuple[str, str], str | None] = {}
        self._pools: dict[str | None, Any] = {}
        self._lock = Lock()

    def _pool_of(self, request: Any) -> Any:
        target = request.url.scheme, request.url.host
        with self._lock:
            if target not in self._proxies:  # once, as httpx reads them: they cost 50 µs
                self._proxies[target] = _proxy_of(*target)
            proxy = self._proxies[target]
            if proxy not in self._pools:
                self._pools[proxy] = self._made(proxy)
            return self._pools[proxy]

    def _made(self, proxy: str | None) -> Any:
        raise NotImplementedError

    def _prepared(self, request: Any) -> Deadline:
        """Start the request's deadline, which replaces the SDK's limit for a single read."""
        asked = request.extensions.get("timeout") or {}
        seconds = asked.get("read")
        request.headers["accept-encoding"] = ACCEPTED
        return Deadline(NO_LIMIT_S if seconds is None else seconds)

    def _body(self, status: int, headers: Any, deadline: Deadline) -> AnswerBody:
        if 300 <= status < 400:
            raise AttemptFailed(
                "malformed",
                f"the server answered HTTP {status}, a redirect, and none is followed: set api_base (base_url) to its target",
                is_final=True,
                may_be_billed=False,
            )
        return AnswerBody(headers, self._limits, deadline)

    def _response(self, status: int, headers: Any, stream: Any, extensions: Any, deadline: Deadline) -> Any:
        kept = self._httpx.Headers(headers)
        kept.pop("content-encoding", None)  # undone by the stream
        more = {**extensions, DEADLINE: deadline}
        return self._httpx.Response(status, headers=kept, stream=stream, extensions=more)


class BoundedTransport(_Bounded):
    """A synchronous transport over httpcore's connection pools. Thread-safe.

    httpx bounds each read of a socket; here the request as a whole is bounded, by a network backend of our own.
    """

    def handle_request(self, request: Any) -> Any:
        """Send a request and return its response; both end at the request's deadline."""
        deadline = self._prepared(request)
        core = _core(self._httpx)
        url, pool = request.url, self._pool_of(request)
        target = core.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        limits = {"connect": deadline, "read": deadline, "write": deadline, "pool": float(deadline)}
        plain = core.Request(
            method=request.method,
            url=target,
            headers=request.headers.raw,
            content=request.stream,
            extensions={**request.extensions, "timeout": limits},
        )
        answer = _translated(self._httpx, pool.handle_request, plain)
        headers = self._httpx.Headers(answer.headers)
        try:
            body = self._body(answer.status, headers, deadline)
        except AttemptFailed:
            answer.close()
            raise
        stream = _streams(self._httpx)[0](answer.stream, body)
        return self._response(answer.status, headers, stream, answer.extensions, deadline)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for pool in self._pools.values():
                pool.close()

    def __enter__(self) -> BoundedTransport:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(Exception):  # half made, or the interpreter ends
            self.close()

    def _made(self, proxy: str | None) -> Any:
        core = _core(self._httpx)
        settings: dict[str, Any] = {
            "ssl_context": self._tls,
            "max_connections": MAX_CONNECTIONS,
            "max_keepalive_connections": KEPT_CONNECTIONS,
            "keepalive_expiry": KEPT_S,
            "network_backend": DeadlineBackend(core.SyncBackend()),
        }
        if proxy is None:
            return core.ConnectionPool(**settings)
        known = self._httpx.Proxy(proxy)
        kind = core.SOCKSProxy if known.url.scheme.startswith("socks") else core.HTTPProxy
        return kind(proxy_url=str(known.url), proxy_auth=known.raw_auth, **settings)


class AsyncBoundedTransport(_Bounded):
    """An asynchronous transport over httpx's own, for one event loop.

    The caller bounds the time that it waits (:func:`vinelm.backends.remote.time_limit.within`); here is bounded the time of a
    response that never makes it wait.
    """

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request and return its response."""
        deadline = self._prepared(request)
        asked = request.extensions.get("timeout") or {}
        connect_s = 0.95 * min(asked.get("connect") or float(deadline), CONNECT_TIMEOUT_S)  # so that it is not the caller's
        request.extensions = {**request.extensions, "timeout": {**asked, "connect": connect_s}}
        answer = await self._pool_of(request).handle_async_request(request)
        try:
            body = self._body(answer.status_code, answer.headers, deadline)
        except AttemptFailed:
            await answer.aclose()
            raise
        stream = _streams(self._httpx)[1](answer.stream, body)
        return self._response(answer.status_code, answer.headers, stream, answer.extensions, deadline)

    async def aclose(self) -> None:
        """Close all connections."""
        for pool in list(self._pools.values()):
            await pool.aclose()

    async def __aenter__(self) -> AsyncBoundedTransport:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    def _made(self, proxy: str | None) -> Any:
        limits = self._httpx.Limits(
            max_connections=MAX_CONNECTIONS, max_keepalive_connections=KEPT_CONNECTIONS, keepalive_expiry=KEPT_S
        )
        return self._httpx.AsyncHTTPTransport(verify=self._tls, limits=limits, proxy=proxy)


def _core(httpx: Any) -> Any:
    return importlib.import_module(httpx.__name__.replace("httpx", "httpcore"))


def _proxy_of(scheme: str, host: str) -> str | None:
    """Return the proxy that the environment names for a host; None if there is none."""
    proxies = getproxies()
    found = proxies.get(scheme) or proxies.get("all")
    if not found or proxy_bypass(host):
        return None
    return found if "://" in found else f"http://{found}"


def _translated(httpx: Any, step: Any, *arguments: Any) -> Any:
    """Run a step of httpcore and raise its errors as httpx's of the same name, which SDKs know."""
    try:
        return step(*arguments)
    except Exception as error:
        kind = getattr(httpx, type(error).__name__, None) if type(error).__module__.startswith("httpcore") else None
        if kind is None:
            raise
        raise kind(str(error)) from error


def _end_after_surplus(raw: Any) -> None:
    """Let a connection end with its answer if more bytes have come than belong to it: they would begin the next answer.

    Bytes that come later are no danger: httpcore uses no idle connection that can be read from.
    """
    stream = getattr(raw, "_httpcore_stream", raw)  # of httpx, around httpcore's
    connection = getattr(getattr(stream, "_stream", None), "_connection", None)
    state = getattr(connection, "_h11_state", None)
    if state is not None and state.trailing_data[0]:
        state.send_failed()


@cache
def _streams(httpx: Any) -> tuple[Any, Any]:
    """Return the classes of a response's stream, derived from those of the library."""

    class AnswerStream(httpx.SyncByteStream):  # type: ignore[misc]
        def __init__(self, raw: Any, body: AnswerBody) -> None:
            self._raw, self._body = raw, body

        def __iter__(self) -> Iterator[bytes]:
            chunks = iter(self._raw)
            while (data := _translated(httpx, next, chunks, None)) is not None:
                yield from self._body.pieces(data)

        def close(self) -> None:
            _end_after_surplus(self._raw)
            self._raw.close()

    class AsyncAnswerStream(httpx.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, raw: Any, body: AnswerBody) -> None:
            self._raw, self._body = raw, body

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for data in self._raw:
                for piece in self._body.pieces(data):
                    yield piece

        async def aclose(self) -> None:
            _end_after_surplus(self._raw)
            await self._raw.aclose()

    return AnswerStream, AsyncAnswerStream
