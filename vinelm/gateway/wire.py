"""Makes calls to models that use the client's format, so that the body and the answer can be passed on unchanged."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from vinelm.backends.remote.failures import SettingRefused, failed
from vinelm.backends.remote.inner import InnerChat
from vinelm.backends.remote.loop import late
from vinelm.backends.remote.meter import ModelRequest
from vinelm.backends.remote.provider import ChatAddress, Provider
from vinelm.backends.remote.retry import AttemptFailed
from vinelm.catalog import Model
from vinelm.catalog.billed_settings import (
    answers_in,
    billed_apart_in,
    dearer_in,
    limit_in,
    other_model_in,
    speaks_in,
    stored_in,
)
from vinelm.catalog.model import entries_of
from vinelm.catalog.secrets import redacted
from vinelm.errors import UNSUPPORTED_CALL, ConfigError
from vinelm.gateway.answer import AnswerPiece, EventReader
from vinelm.gateway.forms import Form

MOST_ADDRESSES = 100
"""How many addresses, each with its key, are remembered."""
_ACCOUNT = re.compile(r"\b(org|proj)[-_][\w-]{6,}")


@dataclass(frozen=True, slots=True)
class WireRequest(ModelRequest):
    """The body of a call as sent to the provider.

    Attributes:
        body: the body's JSON.
        text: the body as JSON text.
        added: the names of settings that the gateway added, and may remove again.
        is_own: whether the client named this model.
    """

    body: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    added: frozenset[str] = frozenset()
    is_own: bool = True

    @property
    def prompt(self) -> str:
        """The body as JSON text, from which the call's maximum cost is calculated."""
        return self.text


def wire_request(
    form: Form,
    asked: Mapping[str, Any],
    model: Model,
    address: ChatAddress,
    *,
    is_own: bool,
    is_capped: bool,
    refused: Collection[str] = (),
) -> WireRequest:
    """Return a client's body as it is sent to the model, with only the necessary changes.

    Args:
        form: the format of the body.
        asked: the client's body.
        model: the called model.
        address: the model's address.
        is_own: whether the client named this model. If not, a limit on the answer's length is sent under the parameter
            name that this model's server reads.
        is_capped: whether the call counts toward a spending cap. Such a call is sent with a limit on the answer's
            tokens, and settings without a maximum cost are refused.
        refused: settings that the model is known to refuse, which are left out unless the client named this model.

    Raises:
        ConfigError: the call is capped, and the maximum cost of a setting is unknown.
    """
    body: dict[str, Any] = {**asked, **address.body, "model": model.model_id}
    added = set()
    stated = {name: asked[name] for name in form.limits if asked.get(name) is not None}
    if is_capped:
        _refuse_unbounded(asked, model, stated)
    # Servers name the limit of an answer differently. Without a cap the client's own parameter reaches the model that it asked
    # for; another model, or a cap, needs the name that this server reads.
    if is_capped or (stated and not is_own):
        for name in form.limits:
            body.pop(name, None)
        body[address.limit] = max(stated.values(), default=model.max_tokens)
    # Without its usage a stream would be booked at its upper bound. The client does not see usage that it did not ask for.
    if form.adds_usage(asked) and "stream_options" not in refused:
        options = asked.get("stream_options")
        body["stream_options"] = {**(options if isinstance(options, Mapping) else {}), "include_usage": True}
        added.add("stream_options")
    if not is_own:
        body = {name: value for name, value in body.items() if name not in refused or name == "stream"}
    limit = limit_in({name: body.get(name) for name in form.limits})
    return WireRequest(
        messages=form.said(asked),  # type: ignore[arg-type]
        stop=None,
        options={"tools": body.get("tools")},
        limit=limit or model.max_tokens,
        answers=answers_in(body),
        is_streamed=bool(body.get("stream")),
        is_limit_asked=True,
        is_limited=limit is not None,
        speaks=speaks_in(body),
        stored=stored_in(body),
        body=body,
        text=json.dumps(body, ensure_ascii=False),
        added=frozenset(added),
        is_own=is_own,
    )


def _refuse_unbounded(asked: Mapping[str, Any], model: Model, stated: Mapping[str, Any]) -> None:
    for name, value in stated.items():
        if type(value) is not int or value < 1:
            raise ConfigError(f"{name} is {value!r}: it must be a whole number from 1", code=UNSUPPORTED_CALL)
    for name in ("n", "best_of"):
        value = asked.get(name)
        if value is not None and (type(value) is not int or not 1 <= value <= 128):
            raise ConfigError(f"{name} is {value!r}: it must be a whole number from 1 to 128", code=UNSUPPORTED_CALL)
    if (tier := dearer_in(asked)) is not None:
        raise ConfigError(
            f"{tier[0]} = {tier[1]!r} costs more than the list price, and a cap of dollars holds for this call: leave it out",
            code=UNSUPPORTED_CALL,
        )
    refuse_billed_apart(asked)
    others = {name: value for name, value in asked.items() if name != "model"}
    if other_model_in(others, model.model_id) is not None:
        raise ConfigError(
            "a cap of dollars holds for this call, so it can name one model only: leave out all but `model`",
            code=UNSUPPORTED_CALL,
        )


def refuse_billed_apart(asked: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` if a capped call asks for server actions that are billed in addition to tokens."""
    if (name := billed_apart_in(asked)) is not None:
        raise ConfigError(
            f"{name} may be billed apart from tokens, and a cap of dollars holds for this call: leave it out",
            code=UNSUPPORTED_CALL,
        )


class WireRefusal(Exception):
    """A provider's error response as an exception, with the attributes by which failures are classified."""

    def __init__(self, status: int | None, body: Any, response: Any) -> None:
        super().__init__()
        self.status_code, self.body, self.response = status, body, response


class UpstreamAnswer(NamedTuple):
    """A provider's whole answer, or its error response."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Upstream:
    """Sends requests to the providers' servers.

    The part that all requests to an address have in common is built once, because it takes two thirds of the time to
    build a request.

    Args:
        client: The HTTP client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._commons: dict[tuple[Any, ...], Any] = {}

    async def post(self, address: ChatAddress, content: bytes) -> Any:
        """Send a body, and return the response before its content is read."""
        key = address.url, *address.headers.items()
        common = self._commons.get(key)
        if common is None:
            if len(self._commons) >= MOST_ADDRESSES:  # keys may change while the gateway runs
                self._commons.clear()
            common = self._commons[key] = self._client.build_request(
                "POST", address.url, headers={**address.headers, "content-type": "application/json"}
            )
            for name in ("content-length", "cookie"):
                common.headers.pop(name, None)
        asking = type(common)(
            "POST",
            common.url,
            headers=common.headers,
            content=content,
            cookies=self._client.cookies,
            extensions=common.extensions,
        )
        return await self._client.send(asking, stream=True)

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.aclose()


class WireSender:
    """Sends one call to a provider and reads the answer, once per attempt; a
    :class:`~vinelm.backends.remote.provider.Sends`.

    Args:
        http: sends the request.
        provider: gives the address of a replica if the model's catalog entry names a group of replicas.
        binding: the pair (the chat model of the catalog entry, the entry's address). The chat model also records which
            settings the model refuses.
        form: the format of the call.
        hides_usage: whether the usage is removed from the client's stream.

    Attributes:
        answer: the answer so far.
        upstream: the provider's whole answer or its error response; None for a stream, or until the answer has arrived.
    """

    def __init__(
        self, http: Upstream, provider: Provider, binding: tuple[InnerChat, ChatAddress], form: Form, *, hides_usage: bool
    ) -> None:
        self._http, self._provider, self._form = http, provider, form
        self._inner, self._address = binding
        self._hides_usage = hides_usage
        self.answer = form.answer()
        self.upstream: UpstreamAnswer | None = None

    def ready(self, entry: Model) -> InnerChat:
        """Return the chat model of the catalog entry. This object also records which settings the model refuses."""
        return self._inner

    def around(self, inner: InnerChat) -> WireSender:
        """Return this sender unchanged, because the client's body already has all settings."""
        return self

    def send(self, entry: Model, request: ModelRequest) -> NoReturn:
        """Raise ``NotImplementedError``: the gateway only makes asynchronous calls (:meth:`asend`)."""
        raise NotImplementedError

    async def asend(self, entry: Model, request: ModelRequest) -> AsyncGenerator[Any]:
        """Send the call and yield the pieces of the answer; raise an error if it takes longer than the entry's
        ``timeout_s``.
        """
        assert isinstance(request, WireRequest)
        until = asyncio.get_running_loop().time() + entry.timeout_s
        try:
            async with aclosing(self._attempt(entry, request)) as pieces:
                while True:
                    async with asyncio.timeout_at(until):
                        piece = await anext(pieces, None)
                    if piece is None:
                        return
                    yield piece
        except TimeoutError:
            if asyncio.get_running_loop().time() < until:
                raise
        raise late(entry.timeout_s)

    async def _attempt(self, entry: Model, request: WireRequest) -> AsyncGenerator[AnswerPiece]:
        address = self._provider.wire(entry, self._form.path) if entry.group is not None else self._address
        assert address is not None  # as when the call was begun
        text = request.text
        if request.dropped:
            text = json.dumps({k: v for k, v in request.body.items() if k not in request.dropped}, ensure_ascii=False)
        try:
            content = text.encode()
        except UnicodeEncodeError:  # an unpaired surrogate, which JSON can write in ASCII
            content = json.dumps(json.loads(text)).encode()
        self.upstream = None
        response = await self._http.post(address, content)
        try:
            is_stream = "event-stream" in response.headers.get("content-type", "")
            if response.status_code != 200 or not is_stream:
                yield self._whole(request, response, await response.aread())
                return
            events = EventReader(hides_usage=self._hides_usage)
            async for data in response.aiter_bytes():
                if found := events.feed(data):
                    yield self._piece(found)
            if found := events.end():
                yield self._piece(found)
            if not self.answer.may_end:
                raise AttemptFailed("server", "the answer broke off before its end")
        finally:
            await response.aclose()

    def _whole(self, request: WireRequest, response: Any, content: bytes) -> AnswerPiece:
        """Return an answer that is not streamed, as one piece. Raise an error if the response is an error or not valid JSON."""
        try:
            plain = json.loads(content)
        except (ValueError, RecursionError):
            plain = None
        is_answer = response.status_code == 200 and isinstance(plain, dict)
        if is_answer or response.status_code != 200:
            self.upstream = UpstreamAnswer(response.status_code, dict(response.headers), content)
        if not is_answer or (plain.get("error") and plain.get("object") != "response"):
            raise self._refused(request, response.status_code, plain, response)
        if plain.get("error"):
            content = json.dumps(cleaned(plain)).encode()
        return AnswerPiece(content, [plain], self.answer, is_end=True)

    def _piece(self, found: Sequence[tuple[bytes, Any]]) -> AnswerPiece:
        plains: list[Mapping[str, Any]] = [plain for _, plain in found if isinstance(plain, dict)]
        for plain in plains:
            if plain.get("error"):
                raise failed(WireRefusal(None, plain, None), has_begun=True)
        is_end = any(plain is None and b"[DONE]" in data for data, plain in found)
        return AnswerPiece(b"".join(_shown(*event) for event in found), plains, self.answer, is_end=is_end)

    def _refused(self, request: WireRequest, status: int, plain: Any, response: Any) -> AttemptFailed:
        if status == 200 and not isinstance(plain, dict):
            return AttemptFailed("malformed", "the server's answer is not a JSON object")
        body = plain if isinstance(plain, dict) else {}
        found = failed(WireRefusal(status if status != 200 else None, body, response), has_begun=False)
        if isinstance(found, SettingRefused) and request.is_own and found.setting not in request.added:
            # The client named this model, so it gets the server's error.
            return AttemptFailed("malformed", found.detail, is_final=True, may_be_billed=False)
        return found


def _shown(data: bytes, plain: Any) -> bytes:
    """Return the bytes of an event for the client. Keys and account numbers are removed from failure events, which may
    contain them.
    """
    kind = plain.get("type") if isinstance(plain, dict) else None
    if kind not in ("error", "response.failed"):
        return data
    return f"event: {kind}\ndata: {json.dumps(cleaned(plain))}\n\n".encode()


def cleaned(plain: Any) -> Any:
    """Return JSON with keys and account numbers removed from its texts, at any depth."""
    if isinstance(plain, dict):
        return {cleaned(name): cleaned(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return [cleaned(value) for value in plain]
    return _ACCOUNT.sub("[account]", redacted(plain)) if isinstance(plain, str) else plain


def address_of(provider: Provider, model: Model, form: Form) -> ChatAddress | None:
    """Return the address at which a model serves calls in this format without translation; None if it does not."""
    return provider.wire(entries_of(model)[0], form.path)
