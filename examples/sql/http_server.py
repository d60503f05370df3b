"""The text-to-SQL service over HTTP: ``POST /ask``, served by Starlette and uvicorn (extra ``demo``)."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from examples.sql.http_service import Answer, HttpService
from vinelm.errors import ConfigError, InputError, VineLMError
from vinelm.extras import required_extra

with required_extra("demo", "the example service"):
    import uvicorn
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route

    from vinelm.http_limits import HttpLimits, bounded_protocol

LIMITS = HttpLimits()
MAX_BODY_BYTES = LIMITS.body_bytes
ONLY_ASK = "only POST /ask is supported"


class HttpServer:
    """A server on 127.0.0.1 that listens from the start and answers in :meth:`serve`, each request in a thread.

    Args:
        ask: Answers the body of a request. Any number of threads call it.
        port: 0 picks a free port.
        limits: What a client may take.

    Raises:
        ConfigError: The port is taken, or none.
    """

    def __init__(self, ask: Callable[[bytes], Answer], port: int, limits: HttpLimits = LIMITS) -> None:
        try:
            if port > 65_535:
                raise OSError("ports end at 65535")
            self._socket = socket.create_server(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(f"--port {port}: cannot listen there: {error}") from error
        self.address: tuple[str, int] = self._socket.getsockname()
        self._threads = ThreadPoolExecutor(limits.connections, "ask")
        config = uvicorn.Config(
            application(ask, limits, self._threads),
            http=bounded_protocol(limits),
            ws="none",
            loop="asyncio",
            lifespan="off",
            h11_max_incomplete_event_size=limits.head_bytes,
            server_header=False,
            log_config=None,
            log_level="critical",  # requests contain users' questions
        )
        self._server = uvicorn.Server(config)

    def serve(self) -> None:
        """Answer requests until :meth:`stop`, then finish those that are pending. Not in the main thread: uvicorn would
        take over its signals.
        """
        self._server.run(sockets=[self._socket])
        self._threads.shutdown()
        self._socket.close()

    def stop(self) -> None:
        """Let :meth:`serve` return; any thread may call, and a signal handler."""
        self._server.should_exit = True


def application(ask: Callable[[bytes], Answer], limits: HttpLimits, threads: ThreadPoolExecutor) -> Starlette:
    """Return the ASGI application: one route, and every refusal as JSON."""

    async def answer(request: Request) -> Response:
        body = await _body(request, limits)
        return _said(*await asyncio.get_running_loop().run_in_executor(threads, _outcome, ask, body))

    async def refuse(request: Request, error: Exception) -> Response:
        refusal = error if isinstance(error, HTTPException) else HTTPException(500)
        return _said(refusal.status_code, {"error": refusal.detail if refusal.status_code not in (404, 405) else ONLY_ASK})

    return Starlette(routes=[Route("/ask", answer, methods=["POST"])], exception_handlers={HTTPException: refuse})


async def _body(request: Request, limits: HttpLimits) -> bytes:
    if request.headers.get("Origin") is not None or not _is_local(request.headers.get("Host", "")):
        raise HTTPException(403, "requests of web pages are refused")
    length = request.headers.get("Content-Length", "")
    if not (length.isascii() and length.isdecimal()) or "Transfer-Encoding" in request.headers:
        raise HTTPException(411, "Content-Length is required")
    if len(length) > 9 or int(length) > limits.body_bytes:
        raise HTTPException(413, f"the body is longer than {limits.body_bytes} bytes")
    try:
        async with asyncio.timeout(limits.body_s):
            return await request.body()
    except (TimeoutError, ClientDisconnect):
        raise HTTPException(408, "the body did not come in time") from None


def _said(status: int, answer: Answer) -> Response:
    """One answer for a connection: the next request opens another."""
    text = json.dumps(answer).encode() + b"\n"
    return Response(text, status, {"Connection": "close"}, "application/json")


def _is_local(host: str) -> bool:
    """Whether a request was meant for this machine: a page whose name was rebound to 127.0.0.1 sends its own name."""
    return host.rpartition(":")[0] in ("127.0.0.1", "localhost") or host in ("127.0.0.1", "localhost")


def _outcome(ask: Callable[[bytes], Answer], body: bytes) -> tuple[int, Answer]:
    try:
        return 200, ask(body)
    except InputError as error:
        return 400, {"error": str(error)}
    except VineLMError as error:
        return 502, {"error": f"no model answered: {error}"}
    except Exception as error:
        print(f"error: unexpected {type(error).__name__}", file=sys.stderr)
        return 500, {"error": "internal error"}


def serve(service: HttpService, port: int) -> int:
    """Serve until SIGINT or SIGTERM, finish pending requests and return exit code 0. Must run in the main thread."""
    server = HttpServer(service.ask, port)
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: server.stop())
    serving = threading.Thread(target=server.serve)
    serving.start()
    print(f"Listening: POST http://127.0.0.1:{server.address[1]}/ask (Ctrl-C ends)", flush=True)
    serving.join()
    print("Stopped.")
    return 0
