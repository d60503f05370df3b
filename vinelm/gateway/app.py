"""The gateway as an ASGI application: identifies the caller, the request, and the application's step that makes a call."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from vinelm.adapters.langchain.openai_form import error_body
from vinelm.api import VineLM
from vinelm.catalog import Model
from vinelm.catalog.billed_settings import MOST_COUNT, too_many_in
from vinelm.errors import ConfigError, InputError
from vinelm.extras import required_extra
from vinelm.gateway.exchange import ClientCall, Exchange
from vinelm.gateway.forms import CHAT_FORM, RESPONSES_FORM, Form
from vinelm.gateway.keys import CallerKey, KeyBook
from vinelm.gateway.open_requests import OpenRequest, OpenRequests
from vinelm.gateway.wire import Upstream
from vinelm.money.guard_pair import GuardPair
from vinelm.objective import Objective
from vinelm.plans.recommendation import served_objective
from vinelm.replay.formats.call import LoggedCall
from vinelm.replay.formats.chat import tools_of
from vinelm.replay.formats.values import conversation_of, mapping
from vinelm.replay.recorder import CallFile
from vinelm.replay.steps import step_of
from vinelm.requests.names import scoped
from vinelm.requests.protocols import Preloads

with required_extra("gateway", "the gateway"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from vinelm.http_limits import HttpLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope, Send

    from vinelm.adapters.langgraph import RunContext
    from vinelm.requests.protocols import CallGuard
    from vinelm.rows.observation import Usage

LIMITS = HttpLimits(connections=2048, head_bytes=64 * 1024, body_bytes=32 << 20, body_s=60.0, answer_s=60.0)
FORMS = (CHAT_FORM, RESPONSES_FORM)
PREFIX = "vinelm/"
"""Prefix of a model's name that names a step."""
KEY = "vinelm_key"
"""The field of a run's ``configurable`` with the name of the caller's key."""
MOST_STEPS = 1000
"""How many steps one process tells apart, since clients name them. Further steps count as one."""
OTHER_STEPS = "other"
_LOG = logging.getLogger(__name__)
_MOST_NAME = 200
_TOKEN = re.compile(r"[\w.:@/+=-]{1,200}")
_STEP = re.compile(r"[\w][\w .:/-]{0,63}")
_LOCAL = ("127.0.0.1", "localhost", "[::1]")


class Refused(Exception):
    """An error response for the client, in OpenAI's format."""

    def __init__(
        self, status: int, code: str, message: str, *, param: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param
        self.headers = {} if retry_after_s is None else {"retry-after": str(max(int(retry_after_s + 0.999), 1))}

    def response(self) -> JSONResponse:
        """Return the HTTP response for this error."""
        return JSONResponse(error_body(self.status, self.message, self.code, self.param), self.status, self.headers)


class Gateway:
    """An ASGI application that serves OpenAI's Chat Completions and Responses APIs. ``vine`` answers each call. Spends
    money.

    Without a trie, a call goes to the model that its client named. With a trie, the plan chooses the model for calls of
    the trie's stages. Bodies and answers are passed on unchanged if the model uses the client's format, and are
    translated otherwise.

    Args:
        vine: Chooses and creates the models. Its catalog has all addresses, and the names of the environment variables
            that hold the providers' keys.
        keys: The keys of callers with their caps. None serves every caller, which is meant for the loopback interface
            only.
        record: The file to which calls are written, for ``vinelm replay``. None writes no calls.
        objective: The objective of requests that do not name an objective. None uses the objective of the plan that the
            trie's verdict is about.
        steps: Names of steps, keyed by the first words of the step's system prompt, as ``vinelm replay`` shows them for
            steps without a name.
        limits: The resources that a client may use.

    Raises:
        ConfigError: There is a trie but no objective, or a model cannot be called because its key is missing.
    """

    def __init__(
        self,
        vine: VineLM,
        *,
        keys: KeyBook | None = None,
        record: str | Path | None = None,
        objective: Objective | None = None,
        steps: Mapping[str, str] | None = None,
        limits: HttpLimits = LIMITS,
    ) -> None:
        self.vine, self.keys, self._limits = vine, keys, limits
        self.record = None if record is None else CallFile(Path(record), "the gateway")
        self._given, self._steps, self._known = objective, dict(steps or {}), set[str]()
        self._plan = _LoadedPlan.of(vine, objective)
        self._requests = OpenRequests(vine)
        self._by_key: dict[str, CallerKey] = {}
        self._theirs = vine.adapter.account_of
        vine.adapter.account_of = self._account_of
        self._http: Upstream | None = None
        for name in vine.catalog:  # a missing key is reported now, not to the first client
            check = getattr(getattr(vine.models.backend_of(name), "provider", None), "check", None)
            if check is not None:
                check(vine.catalog[name])
        for backend in vine.models.backends.values():
            if isinstance(backend, Preloads):
                backend.preload()
        self._app = Starlette(
            routes=[
                *(Route(f"/v1/{form.path}", partial(self._call, form=form), methods=["POST"]) for form in FORMS),
                Route("/v1/models", self._models),
                Route("/v1/models/{name:path}", self._model),
                Route("/health", self._health),
            ],
            exception_handlers={HTTPException: self._no_such, Refused: self._refused, Exception: self._broken},
            lifespan=self._lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request, as ASGI defines it."""
        await self._app(scope, receive, send)

    @property
    def plan(self) -> _LoadedPlan:
        """The plan of the currently loaded trie, which may be replaced while the gateway runs."""
        if self.vine.planner is not self._plan.planner:
            try:
                self._plan = _LoadedPlan.of(self.vine, self._given)
            except ConfigError as error:
                self._plan = self._plan._replace(planner=self.vine.planner)
                _LOG.warning("the new plan is served for the old objective: %s", error)
        return self._plan

    @property
    def http(self) -> Upstream:
        """The HTTP client for the providers, created at the first call, because its connections belong to one event loop."""
        if self._http is None:
            from vinelm.backends.openai.http_library import http_library
            from vinelm.backends.remote.answer_size import bound_answers
            from vinelm.backends.remote.idle_connections import probe_cheaply

            library = http_library()
            limits = library.Limits(max_connections=None, max_keepalive_connections=1000, keepalive_expiry=5.0)
            client = library.AsyncClient(timeout=None, limits=limits, follow_redirects=False)
            bound_answers(client, is_async=True)
            probe_cheaply(client)
            self._http = Upstream(client)
        return self._http

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        yield
        if self._http is not None:
            await self._http.aclose()
            self._http = None
        self.vine.close()

    # -- what is asked -----------------------------------------------------------------------------------------------------

    async def _call(self, request: Request, form: Form) -> Response:
        key = self._caller(request)
        body = _body_of(await self._read(request), form)
        if key is not None and self.keys is not None and (wait_s := self.keys.wait_s(key)) > 0.0:
            raise Refused(429, "rate_limit_exceeded", "this key makes too many calls a minute", retry_after_s=wait_s)
        step, title, default = self._step_of(request, form, body)
        is_named = "x-vinelm-request" in request.headers
        try:
            found = self._request_of(request, key, body, is_named=is_named)
        except InputError as error:
            raise Refused(400, error.code, str(error)) from None
        is_planned = step in self.plan.steps
        call = ClientCall(form, body, step=step, title=title, default=default, request=found, is_planned=is_planned)

        def ended(usages: Sequence[Usage]) -> None:
            self._requests.end_call(found)
            if key is not None and key.daily_usd is None and self.keys is not None:
                self.keys.count(key, usages)

        return Relay(self, call, ended)

    def _request_of(self, request: Request, key: CallerKey | None, body: Mapping[str, Any], *, is_named: bool) -> OpenRequest:
        name = request.headers.get("x-vinelm-request") or uuid4().hex
        if not _TOKEN.fullmatch(name):
            raise ConfigError("x-vinelm-request: use 1 to 200 letters, digits and ._:@/+=-")
        asked = self._asked(request.headers.get("x-vinelm-objective"))
        tenant = "" if key is None else key.tenant
        told = {"tenant": tenant} if tenant else {}
        if talk := conversation_of(mapping(body.get("metadata")), request.headers.get("x-vinelm-conversation")):
            told["thread_id"] = scoped(talk[:_MOST_NAME], "" if key is None else key.name)
        if key is not None:
            self._by_key[key.name] = key
            told[KEY] = key.name
        return self._requests.begin_call(
            name,
            is_named=is_named,
            caller=scoped(tenant, "" if key is None else key.name),
            configurable=told,
            objective=asked or self.plan.objective,
            asked=asked,
        )

    def _asked(self, text: str | None) -> Objective | None:
        if text is None:
            return None
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError):
            plain = None
        if not isinstance(plain, dict):
            raise ConfigError('x-vinelm-objective: write a JSON object such as {"maximize": "accuracy", "max_latency_s": 5}')
        return Objective.from_dict(plain)

    def _step_of(self, request: Request, form: Form, body: Mapping[str, Any]) -> tuple[str, str, str | None]:
        """Return the identifier of the step that makes the call, the step's name, and the catalog entry that the client named.

        The name is empty if neither the client nor the prompt gives one. The identifier is the name or, without one, a
        text made from the prompt. If there are too many steps, new ones share one identifier. The catalog entry is None if
        the client named a step instead of a model.
        """
        model, title = body["model"], request.headers.get("x-vinelm-step", "")
        default = None
        if model.startswith(PREFIX):
            title = title or model.removeprefix(PREFIX)
        else:
            default = self._entry(model).name
        if title and not _STEP.fullmatch(title):
            raise Refused(400, "invalid_step", "a step's name has 1 to 64 letters, digits, blanks and .:/-", param="model")
        step = title
        if not title:
            seen = LoggedCall(
                request="",
                call="",
                messages=form.messages(body),
                tools=tools_of(body.get("tools")),
                response_format=form.response_format(body),
            )
            found = step_of(seen)
            title = self._steps.get(found.title) or self._steps.get(found.key) or ""
            title = title or (found.title if found.title in self.plan.steps else "")
            step = title or found.key
        if step not in self._known:
            if len(self._known) >= MOST_STEPS and step not in self.plan.steps:
                return OTHER_STEPS, title, default
            self._known.add(step)
        return step, title, default

    def _entry(self, name: str) -> Model:
        """Return the catalog entry with this name or, if there is none, the first entry whose model has this id at its
        provider. Raise :class:`Refused` if there is no such entry.
        """
        catalog = self.vine.catalog
        if name in catalog and name in set(catalog):
            return catalog[name]
        for model in catalog.models:
            if name in (model.model_id, f"{model.provider}/{model.model_id}", f"{model.provider}:{model.model_id}"):
                return model
        raise Refused(
            404,
            "model_not_found",
            f"unknown model {name[:80]!r}: GET /v1/models lists the models",
            param="model",
        )

    # -- who asks ------------------------------------------------------------------------------------------------------------

    def _caller(self, request: Request) -> CallerKey | None:
        """Return the caller's key; None if the gateway has no keys. Raise :class:`Refused` for an unknown key or a
        forbidden caller.
        """
        if self.keys is None:
            # A page in a browser must not spend the owner's money, whatever name it uses for this machine.
            host = request.headers.get("host", "")
            if "origin" in request.headers or not (host in _LOCAL or host.rpartition(":")[0] in _LOCAL):
                raise Refused(403, "forbidden", "a gateway without keys serves programs of this machine only, and no web pages")
            return None
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        try:
            key = self.keys.find(given.strip()) if kind.lower() == "bearer" and given else None
        except (OSError, sqlite3.Error):
            _LOG.exception("the keys cannot be read")
            raise Refused(503, "keys_unreadable", "the keys cannot be read: try again later") from None
        if key is None:
            raise Refused(401, "invalid_api_key", "unknown key: send a key of this gateway as Authorization: Bearer KEY")
        return key

    def _account_of(self, context: RunContext) -> CallGuard | None:
        """Return the guard that authorizes a run's calls; None without caps.

        It applies the cap of the caller's key, and the cap that all processes of the fleet share for the run's tenant.
        """
        theirs = None if self._theirs is None else self._theirs(context)
        key = self._by_key.get((context.configurable or {}).get(KEY, ""))
        own = None if key is None or self.keys is None else self.keys.account(key)
        return GuardPair(theirs, own) if theirs is not None and own is not None else theirs or own

    async def _read(self, request: Request) -> bytes:
        """Return the body of an HTTP request. Raise an error if the body exceeds the limits."""
        limits, found, size = self._limits, [], 0
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limits.body_bytes:
            raise Refused(413, "request_too_large", f"the body is longer than {limits.body_bytes} bytes")
        try:
            async with asyncio.timeout(limits.body_s):
                async for piece in request.stream():
                    size += len(piece)
                    if size > limits.body_bytes:
                        raise Refused(413, "request_too_large", f"the body is longer than {limits.body_bytes} bytes")
                    found.append(piece)
        except (TimeoutError, ClientDisconnect):
            raise Refused(408, "body_timeout", "the body did not come in time") from None
        return b"".join(found)

    # -- other answers -------------------------------------------------------------------------------------------------------

    def _listed(self) -> list[dict[str, Any]]:
        entries = [
            {"id": model.name, "object": "model", "created": 0, "owned_by": model.provider}
            for model in self.vine.catalog.models
        ]
        steps = [
            {"id": PREFIX + name, "object": "model", "created": 0, "owned_by": "vinelm"} for name in sorted(self.plan.steps)
        ]
        return [*entries, *steps]

    async def _models(self, request: Request) -> Response:
        self._caller(request)
        return JSONResponse({"object": "list", "data": self._listed()})

    async def _model(self, request: Request) -> Response:
        self._caller(request)
        name = request.path_params["name"]
        found = next((one for one in self._listed() if one["id"] == name), None)
        if found is None:
            raise Refused(404, "model_not_found", f"unknown model {name[:80]!r}", param="model")
        return JSONResponse(found)

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return error.response()

    async def _no_such(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        said = {
            404: "unknown path: use /v1/chat/completions, /v1/responses or /v1/models",
            405: "this path takes another method",
        }.get(status, "this request cannot be served")
        return JSONResponse(error_body(status, said, "not_found" if status == 404 else "bad_request"), status)

    async def _broken(self, request: Request, error: Exception) -> Response:
        return JSONResponse(error_body(500, "the gateway failed at this request", "internal_error"), 500)


class Relay(Response):
    """The HTTP response to a call: makes the call and sends the answer as it arrives. If the client disconnects, the
    call is cancelled.
    """

    def __init__(self, gateway: Gateway, call: ClientCall, ended: Callable[[Sequence[Usage]], None]) -> None:
        self._gateway, self._call, self._ended = gateway, call, ended
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Make the call, and send its answer to the client."""
        gateway = self._gateway
        exchange = Exchange(gateway.vine, gateway.http, gateway.record, self._call, send)
        work = asyncio.ensure_future(exchange.run())
        gone = asyncio.ensure_future(_hung_up(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not work.done():
                work.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            self._ended(exchange.usages)


async def _hung_up(receive: Callable[[], Awaitable[Any]]) -> None:
    """Return once the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


class _LoadedPlan(NamedTuple):
    """The plan that is currently loaded: the planner, the objective, and the names of the stages for which the plan
    chooses models.
    """

    planner: Any
    objective: Objective | None
    steps: frozenset[str]

    @classmethod
    def of(cls, vine: VineLM, given: Objective | None) -> _LoadedPlan:
        planner = vine.planner
        if planner is None:
            return cls(None, given, frozenset())
        verdict = planner.annotated.verdict
        found = given or (None if verdict is None else served_objective(verdict))
        if found is None:
            raise ConfigError("the plan has no verdict, so say what to plan for: an objective such as maximize accuracy")
        return cls(planner, found, frozenset(stage.name for stage in planner.annotated.template.base.stages))


def _body_of(content: bytes, form: Form) -> dict[str, Any]:
    """Return the JSON object in an HTTP body; raise :class:`Refused` if it is invalid. Only the fields that the gateway
    needs are checked; the provider checks the rest.
    """
    try:
        body = json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Refused(400, "invalid_json", "the body is not valid JSON") from None
    if not isinstance(body, dict):
        raise Refused(400, "invalid_json", "the body is not a JSON object")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise Refused(400, "missing_model", "model must be a text", param="model")
    if (wrong := form.wrong(body)) is not None:
        raise Refused(400, f"invalid_{wrong[0]}", wrong[1], param=wrong[0])
    for name, kind in (("stream", bool), ("stream_options", dict), ("tools", list)):
        if body.get(name) is not None and not isinstance(body[name], kind):
            raise Refused(400, "invalid_type", f"{name} must be {_KINDS[kind]}", param=name)
    try:
        too_many = too_many_in(body)
    except RecursionError:
        raise Refused(400, "invalid_json", "the body is nested too deeply") from None
    if too_many is not None:
        raise Refused(400, "integer_above_max_value", f"{too_many} is too large: at most {MOST_COUNT}", param=too_many)
    return body


_KINDS: Mapping[type, str] = {bool: "true or false", dict: "an object", list: "a list"}


def _no_number(text: str) -> Any:
    raise ValueError(text)
