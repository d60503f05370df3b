"""The text-to-SQL service over HTTP: ``POST /ask`` with a question, a database and optionally the request's objective."""

from __future__ import annotations

import itertools
import json
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader
from typing import Any

from vinelm import Objective, VineLM
from vinelm.errors import ConfigError, InputError, VineLMError
from vinelm.workflow import Request, Workflow
from vinelm.workflows.examples.sql.http_limits import BoundedReader, HttpLimits

Answer = dict[str, Any]
LIMITS = HttpLimits()
MAX_BODY_BYTES = LIMITS.body_bytes
_BUSY = b'HTTP/1.0 503 Service Unavailable\r\nContent-Type: application/json\r\n\r\n{"error": "too many connections"}\n'


class HttpService:
    """Answers questions; thread-safe. ``default`` is the objective of requests without one.

    Simulated models need the dataset's row of a request, so they answer only questions of the dataset.
    """

    def __init__(self, workflow: Workflow, vine: VineLM, app: Any, default: Objective, *, is_simulated: bool) -> None:
        self._workflow, self._vine, self._app, self._default = workflow, vine, app, default
        self._known = {(row.data["question"], row.data["db_id"]): row for row in workflow.requests} if is_simulated else None
        self._databases = sorted({str(row.data["db_id"]) for row in workflow.requests})
        self._numbers = itertools.count(1)

    def ask(self, body: bytes) -> Answer:
        """Answer one request: statement, status, number of rows, models, dollars and seconds.

        Raises:
            InputError: the body is not a valid request.
        """
        asked = _object(body)
        request, objective = self._request(asked), self._objective(asked.get("objective"))
        session = None if self._vine.planner is None else self._vine.session(objective, request=request)
        context = self._vine.context(objective, policy=session, request=request)
        state: Mapping[str, Any] = self._app.invoke(self._workflow.graph_input(request), context=context)
        answer = {"sql": state["sql"], "status": state["status"], "rows": state["row_count"]}
        if session is None:
            return answer
        models = max((done.prefix for done in session.invocations), key=len, default=())
        spent_s = session.clock.now() - session.started_at
        return {**answer, "models": list(models), "cost_usd": session.spent_usd, "latency_s": round(spent_s, 3)}

    def _request(self, asked: Mapping[str, Any]) -> Request:
        question, database = (asked.get(name) for name in ("question", "db_id"))
        if not isinstance(question, str) or not question.strip():
            raise ConfigError("question must be a non-empty string")
        if database not in self._databases:
            raise ConfigError(f"db_id must be one of {', '.join(self._databases)}")
        if self._known is None:
            return Request(f"ask-{next(self._numbers)}", {"question": question, "db_id": database})
        if (question, database) not in self._known:
            raise ConfigError(
                "simulated models answer only questions of the dataset: start the service with --models for others"
            )
        return self._known[question, database]

    def _objective(self, plain: Any) -> Objective:
        if plain is None:
            return self._default
        if not isinstance(plain, dict):
            raise ConfigError('objective must be an object such as {"maximize": "accuracy", "max_latency_s": 5}')
        try:
            return Objective.from_dict(plain)
        except TypeError:
            raise ConfigError("objective: bounds must be numbers") from None


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise ConfigError("the body is not valid JSON") from None
    if not isinstance(asked, dict):
        raise ConfigError("the body is not a JSON object")
    for key in asked:
        if key not in ("question", "db_id", "objective"):
            raise ConfigError(f"unknown key {key!r}: use question, db_id and objective")
    return asked


def server_of(ask: Callable[[bytes], Answer], port: int, limits: HttpLimits = LIMITS) -> ThreadingHTTPServer:
    """Return a server on 127.0.0.1 that has not been started; port 0 picks a free port. :class:`ConfigError` if it is taken."""

    class Handler(_Handler):
        def answer(self, body: bytes) -> tuple[int, Answer]:
            return _outcome(ask, body)

    Handler.limits = limits
    try:
        return _Server(("127.0.0.1", port), Handler, limits)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--port {port}: cannot listen there: {error}") from error


class _Server(ThreadingHTTPServer):
    """A thread per connection, and a bounded number of them."""

    daemon_threads = False  # pending requests are answered before the server closes

    def __init__(self, address: tuple[str, int], handler: type[_Handler], limits: HttpLimits) -> None:
        super().__init__(address, handler)
        self._free = threading.BoundedSemaphore(limits.connections)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve the connection in a thread, or refuse it if too many are open."""
        if not self._free.acquire(blocking=False):
            with suppress(OSError):
                request.settimeout(0)  # the accepting thread waits for nobody
                request.send(_BUSY)
            return self.shutdown_request(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve the connection, and make room for another one."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the kind of an error; a client that went away is none."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(f"error: unexpected {type(error).__name__}", file=sys.stderr)


class _Handler(BaseHTTPRequestHandler):
    """One request per connection, within the limits."""

    limits = LIMITS
    requestline, request_version = "", "HTTP/1.0"  # for a refusal before the request line was read

    def answer(self, body: bytes) -> tuple[int, Answer]:
        """Return status and answer for the body of a request."""
        raise NotImplementedError

    def setup(self) -> None:
        """Read within the limits from here on."""
        super().setup()
        self.rfile.close()
        self._reader = BoundedReader(self.connection)
        self._reader.allow(self.limits.head_bytes, self.limits.head_s)
        self.rfile = BufferedReader(self._reader)

    def handle(self) -> None:
        """Serve the request; one that is longer than it may be is refused wherever that shows."""
        try:
            super().handle()
        except HTTPException:
            self._say(431, {"error": f"request line and headers are longer than {self.limits.head_bytes} bytes"})

    def do_POST(self) -> None:
        """Answer a question."""
        if self.path != "/ask":
            return self._say(404, {"error": "only POST /ask is supported"})
        if self.headers.get("Origin") is not None or not _is_local(self.headers.get("Host", "")):
            return self._say(403, {"error": "requests of web pages are refused"})
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            return self._say(411, {"error": "Content-Length is required"})
        if len(length) > 9 or int(length) > self.limits.body_bytes:
            return self._say(413, {"error": f"the body is longer than {self.limits.body_bytes} bytes"})
        self._reader.allow(int(length), self.limits.body_s)
        return self._say(*self.answer(self.rfile.read(int(length))))

    def do_GET(self) -> None:
        """Refuse."""
        self._say(405 if self.path == "/ask" else 404, {"error": "only POST /ask is supported"})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no request as everything else is refused: in JSON."""
        self._say(code, {"error": self.responses.get(HTTPStatus(code), ("not a valid request",))[0]})

    def _say(self, status: int, answer: Answer) -> None:
        text = json.dumps(answer).encode() + b"\n"
        self.connection.settimeout(self.limits.answer_s)
        self.send_response(status)
        for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(text)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests contain users' questions."""


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
    with server_of(service.ask, port) as server:
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, lambda *_: threading.Thread(target=server.shutdown).start())
        print(f"Listening: POST http://127.0.0.1:{server.server_port}/ask (Ctrl-C ends)", flush=True)
        server.serve_forever(poll_interval=0.1)
    print("Stopped.")
    return 0
