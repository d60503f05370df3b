"""A workflow over HTTP: one serving process of a fleet. An example to start from, used by the files beside it.

    python deploy/service.py my_app:workflow --trie my-app.vine --models models.toml --tokens tokens.toml --port 8000

| request | answer |
| --- | --- |
| `POST /ask` `{"data": {...}}` | answer, models, dollars, seconds; also takes `id`, `conversation`, `objective` |
| `POST /feedback` `{"id": ..., "success": true}` | changes the row of the request |
| `GET /metrics` | for Prometheus |
| `GET /health` | version of the trie, rows that wait or were lost, the fleet as this process sees it |

SIGHUP, or a new version of the file, replaces the trie. SIGTERM finishes what is under way, writes its rows and leaves the
fleet. Needs the extras demo and metrics, and fleet for `--fleet`.

Whose request it is says `Authorization: Bearer TOKEN` alone. The file of `--tokens` has a line `acme = "TOKEN"` for each
tenant; each has ids, conversations and a `--daily-usd` of its own. Without the file nobody is known: all callers are one, and
feedback is refused. Tokens are sent as they are, so put it behind a proxy that speaks HTTPS.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
import tomllib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vinelm import Objective, VineLM
from vinelm.adapters.langgraph import build_graph
from vinelm.backends import create_backends
from vinelm.catalog import Catalog
from vinelm.controller import FleetConfig
from vinelm.errors import CallRefused, ConfigError, InputError, VineLMError
from vinelm.requests.names import scoped
from vinelm.requests.workflow import Request
from vinelm.telemetry import Prometheus
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.workflows import load_workflow


class UnknownCaller(VineLMError):
    """A request without a token, or with one that nobody has."""


STATUS = ((UnknownCaller, 401), (CallRefused, 429), (InputError, 400), (VineLMError, 502))
"""What a caller is told, by the first kind of exception that fits."""
SHORTEST = 16
"""Characters of the shortest token that is taken."""


class Tenants:
    """Knows callers by their tokens.

    Args:
        path: TOML, a tenant's name to its token, or to a list of them; None: nobody is known.

    Raises:
        ConfigError: the file cannot be read, a token is short, or two tenants have one.
    """

    def __init__(self, path: Path | None) -> None:
        self.names: set[str] = set()
        self._by_digest: dict[bytes, str] | None = None if path is None else {}
        if path is None or self._by_digest is None:
            return
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: cannot read the tokens: {type(error).__name__}") from None  # it may quote one
        for tenant, tokens in given.items():
            for token in tokens if isinstance(tokens, list) else [tokens]:
                if not isinstance(token, str) or len(token) < SHORTEST or not tenant:
                    raise ConfigError(f"{path}: tenant {tenant!r} needs a token of at least {SHORTEST} characters")
                if self._by_digest.setdefault(_digest(token), tenant) != tenant:
                    raise ConfigError(f"{path}: tenant {tenant!r} has the token of another one: give each its own")
            self.names.add(tenant)

    @property
    def are_known(self) -> bool:
        """Whether callers are told apart at all."""
        return self._by_digest is not None

    def of(self, authorization: str) -> str:
        """Return whose request it is, by its header; "" where nobody is known."""
        if self._by_digest is None:
            return ""
        kind, _, token = authorization.partition(" ")
        tenant = self._by_digest.get(_digest(token.strip())) if kind.lower() == "bearer" else None
        if tenant is None:
            raise UnknownCaller("nobody is known by that token: send the header Authorization: Bearer TOKEN")
        return tenant


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()  # found by its hash, so that time tells nothing


class Service:
    """Answers the requests of one workflow. Thread-safe."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.tenants = Tenants(options.tokens)
        self.workflow = load_workflow(options.workflow)
        catalog = Catalog.from_file(options.models)
        backends = create_backends(catalog, workflow=self.workflow)
        self.vine = VineLM(
            catalog,
            backends,
            trie=options.trie,
            fleet=fleet_config(options, self.tenants),
            evidence=options.evidence,
            signals=self.workflow.signals,
            kind=self.workflow.kind,
        )
        self.vine.observe(Prometheus())
        self.app = build_graph(self.workflow, self.vine)
        self.default = Objective(maximize="accuracy", max_cost_usd=options.max_cost_usd)
        is_simulated = any(backend.is_simulated for backend in backends.values())
        self.known = {one.id: one for one in self.workflow.requests} if is_simulated else None
        """Simulated models answer only requests of the dataset."""

    def ask(self, asked: Mapping[str, Any], tenant: str) -> dict[str, Any]:
        """Answer one request of a tenant.

        Raises:
            VineLMError: it is not valid, was refused, or no model answered.
        """
        if "tenant" in asked:
            raise ConfigError("tenant is not taken from the body: whose request it is says its token")
        run_id, conversation = _text(asked, "id") or uuid.uuid4().hex, _text(asked, "conversation")
        request = self._request(asked, run_id)
        given = asked.get("objective")
        if not isinstance(given, dict | None):
            raise ConfigError('objective must be an object, such as {"maximize": "accuracy"}')
        objective = self.default if given is None else Objective.from_dict(given)
        labels = {"tenant": tenant}
        if conversation:  # of this tenant: a checkpointer keeps what was said under the thread's id alone
            labels["thread_id"] = scoped(conversation, tenant)
        simulated = None if self.known is None else request
        session = self.vine.session(objective, request=simulated, configurable=labels, run_id=run_id)
        context = self.vine.context(policy=session, request=simulated, request_id=run_id)
        config = {"configurable": {"thread_id": uuid.uuid4().hex, **labels}}
        state = self.app.invoke(self.workflow.graph_input(request), config, context=context)
        return {
            "id": run_id,
            "answer": {key: state.get(key) for key in self.workflow.answer},
            "models": max((one.prefix for one in session.invocations), key=len, default=()),
            "invocations": [[*one.prefix] for one in session.invocations],
            "cost_usd": session.spent_usd,
            "latency_s": round(session.clock.now() - session.started_at, 3),
        }

    def _request(self, asked: Mapping[str, Any], run_id: str) -> Request:
        if self.known is not None:
            if _text(asked, "data_id") not in self.known:
                raise ConfigError("simulated models answer only requests of the dataset: give its id as data_id")
            return self.known[asked["data_id"]]
        data = asked.get("data")
        if not isinstance(data, dict):
            raise ConfigError("data must be an object: the keys that the workflow reads")
        return Request(run_id, data)

    def feedback(self, said: Mapping[str, Any], tenant: str) -> dict[str, Any]:
        """Say whether the answer of a tenant's own request was right."""
        if not self.tenants.are_known:
            raise UnknownCaller("feedback is taken from known callers: start the service with --tokens")
        self.vine.feedback(_text(said, "id"), said.get("success"), tenant=tenant)  # type: ignore[arg-type]  # it looks itself
        return {}

    def health(self) -> dict[str, Any]:
        """What a person, or a load balancer, wants to know of this process."""
        evidence, fleet = self.vine.evidence, self.vine.fleet
        planner = self.vine.planner
        rows = None if evidence is None else evidence.writer
        return {
            "trie": None if planner is None else version_of(planner.annotated),
            "rows": rows and {"written": rows.written, "waiting": rows.waiting, "lost": rows.dropped},
            "fleet": fleet and {"alone": fleet.fleet.is_alone, "processes": fleet.fleet.processes},
        }


def _text(asked: Mapping[str, Any], key: str) -> str:
    """The text under a key; "" if it is missing."""
    found = asked.get(key, "")
    if not isinstance(found, str) or not found.isprintable():  # a lone half of a character is not printable either
        raise ConfigError(f"{key} must be a text of printable characters")
    return found


def export_health(service: Service) -> None:
    """Add what :meth:`Service.health` says to the metrics of the process."""
    evidence, fleet = service.vine.evidence, service.vine.fleet
    if evidence is not None:
        writer = evidence.writer
        Gauge("vinelm_rows_written", "Rows of served requests that this process has written.").set_function(
            lambda: writer.written
        )
        Gauge("vinelm_rows_waiting", "Rows that wait for the disk.").set_function(lambda: writer.waiting)
        Gauge("vinelm_rows_lost", "Rows that were dropped or could not be written.").set_function(lambda: writer.dropped)
    if fleet is not None:
        member = fleet.fleet
        Gauge("vinelm_fleet_processes", "Processes of the fleet that live.").set_function(lambda: member.processes)
        Gauge("vinelm_fleet_alone", "1 while Redis does not answer.").set_function(lambda: member.is_alone)


def version_of(annotated: AnnotatedTrie) -> str:
    """Tells one trie of a workflow from the next: twelve digits of a hash of its annotations."""
    columns = (annotated.success, annotated.stop, annotated.cost_usd, annotated.latency_s)
    return hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()[:12]


def fleet_config(options: argparse.Namespace, tenants: Tenants) -> FleetConfig | None:
    """How the process joins its fleet; None without one."""
    caps: dict[str, float] = {}
    for cap in options.daily_usd:
        tenant, _, usd = cap.rpartition("=")
        try:
            caps[tenant] = float(usd)
        except ValueError:
            raise ConfigError(f"--daily-usd {cap}: write TENANT=USD, such as acme=50") from None
        if tenant not in {"*", *tenants.names}:
            raise ConfigError(f"--daily-usd {cap}: has no effect: no token of --tokens is that of {tenant!r}")
    if not options.fleet:
        return None
    return FleetConfig(url=options.fleet, name=options.fleet_name, daily_usd=caps, journal=options.journal)


class Line(JSONResponse):
    """JSON on a line of its own, for terminals."""

    def render(self, content: Any) -> bytes:
        """The bytes to send."""
        return super().render(content) + b"\n"


def answering(
    ask: Callable[[Mapping[str, Any], str], dict[str, Any]], tenants: Tenants
) -> Callable[[HttpRequest], Awaitable[Response]]:
    """An endpoint for JSON objects of known callers; each request is answered in a thread."""

    async def answer(request: HttpRequest) -> Response:
        try:
            tenant = tenants.of(request.headers.get("authorization", ""))
        except UnknownCaller as error:
            return Line({"error": str(error), "code": None}, 401)
        try:
            asked = await request.json()
            if not isinstance(asked, dict):
                raise ValueError
        except (ValueError, RecursionError):
            return Line({"error": "the body is not a JSON object"}, 400)
        try:
            return Line(await run_in_threadpool(ask, asked, tenant))
        except Exception as error:
            status = next((code for kind, code in STATUS if isinstance(error, kind)), 500)
            told = str(error) if status != 500 else f"unexpected {type(error).__name__}"
            return Line({"error": told, "code": getattr(error, "code", None)}, status)

    return answer


def application(service: Service) -> Starlette:
    """The ASGI application."""

    async def metrics(_: HttpRequest) -> Response:
        return Response(generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def health(_: HttpRequest) -> Response:
        return Line(service.health())

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        service.vine.close()  # here, since uvicorn then ends the process by the signal that it received

    return Starlette(
        lifespan=lifespan,
        routes=[
            Route("/ask", answering(service.ask, service.tenants), methods=["POST"]),
            Route("/feedback", answering(service.feedback, service.tenants), methods=["POST"]),
            Route("/metrics", metrics),
            Route("/health", health),
        ],
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description="One serving process of a workflow.")
    made.add_argument("workflow", help="module:attribute, as for vinelm profile")
    made.add_argument("--models", type=Path, required=True, help="catalog of models")
    made.add_argument("--trie", type=Path, required=True, help="what vinelm estimate wrote")
    made.add_argument("--tokens", type=Path, help='who may ask: TOML, a line acme = "TOKEN" for each tenant [default: anybody]')
    made.add_argument("--host", default="127.0.0.1", help="address to listen on [default: %(default)s]")
    made.add_argument("--port", type=int, default=8000, help="[default: %(default)s]")
    made.add_argument("--max-cost-usd", type=float, default=0.01, help="mean dollars of a request [default: %(default)s]")
    made.add_argument(
        "--fleet",
        action=_Address,
        help="redis://...: what all processes share [with a password: VINELM_FLEET in the environment]",
    )
    made.add_argument("--fleet-name", default="default", help="[default: %(default)s]")
    made.add_argument(
        "--daily-usd",
        action="append",
        default=[],
        metavar="TENANT=USD",
        help="cap of a tenant's day, * of each that has a token and no cap of its own; needs --journal",
    )
    made.add_argument(
        "--journal",
        action=_Address,
        help="what was leased of the caps: a SQLite file, or postgresql://... for several machines [or VINELM_JOURNAL]",
    )
    made.add_argument("--evidence", type=Path, help="store of served rows")
    made.add_argument("--watch-s", type=float, default=5.0, help="look for a new trie so often [default: %(default)s]")
    made.set_defaults(fleet=os.environ.get("VINELM_FLEET"), journal=os.environ.get("VINELM_JOURNAL"))
    return made


class _Address(argparse.Action):
    """An address without a password: every user of a machine sees the options of its processes.

    An action and no type, as argparse applies a type to defaults, too: an address of the environment may hold one.
    """

    def __call__(self, _: Any, options: argparse.Namespace, text: Any, name: str | None = None) -> None:
        if "://" in text and ":" in text.split("://", 1)[1].rpartition("@")[0]:
            raise argparse.ArgumentError(
                self, "the address holds a password: give it in VINELM_FLEET, VINELM_JOURNAL or PGPASSWORD"
            )
        setattr(options, self.dest, text)


def main() -> int:
    """Serve until SIGTERM."""
    options = parser().parse_args()
    try:
        service = Service(options)
    except VineLMError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    export_health(service)
    service.vine.reload_on(signal.SIGHUP)
    service.vine.watch(options.watch_s)
    uvicorn.run(application(service), host=options.host, port=options.port, log_level="warning")
    return 0


if __name__ == "__main__":
    sys.exit(main())
