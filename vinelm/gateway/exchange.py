"""Handles one call of a client: sends it to a model, passes on the provider's answer, and records both."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.prompt_values import ChatPromptValue

from vinelm.adapters.calls.fallback_model import FallbackModel
from vinelm.adapters.langchain.openai_form import OpenAIAnswer, aevents, asked_of, error_body, told, whole_answer
from vinelm.adapters.langgraph.runs.chat_call import ChatCall
from vinelm.adapters.langgraph.runs.invocation import InvocationScope
from vinelm.adapters.langgraph.runs.run_context import AMBIENT
from vinelm.api import VineLM
from vinelm.backends.base import bound_instance
from vinelm.backends.remote.chat_model import RemoteChatModel
from vinelm.backends.remote.meter import SeenAnswer
from vinelm.backends.remote.provider import CallBinding
from vinelm.catalog.secrets import redacted
from vinelm.errors import UNSUPPORTED_CALL, CallError, ConfigError, VineLMError
from vinelm.gateway.answer import EventReader
from vinelm.gateway.forms import RESPONSES_FORM, Form
from vinelm.gateway.open_requests import OpenRequest
from vinelm.gateway.wire import (
    Upstream,
    UpstreamAnswer,
    WireSender,
    address_of,
    cleaned,
    refuse_billed_apart,
    wire_request,
)
from vinelm.replay.formats.chat import settings_of, tools_of, usage_of
from vinelm.replay.recorder import CallFile
from vinelm.requests.names import scoped
from vinelm.rows.observation import Usage

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_LOG = logging.getLogger(__name__)
_WHOLE = ("truncated", "content_filter", "empty")
"""Failures of answers that arrived whole: a client of the provider would see these answers unchanged."""
_HEADERS = ("retry-after", "retry-after-ms", "x-should-retry", "x-request-id")
"""Headers of a provider's answer that clients act on. Other headers reveal facts about the operator's account."""
_JSON, _EVENTS = b"application/json", b"text/event-stream; charset=utf-8"
CUT = "the client hung up"


class ClientCall:
    """A call as its client sent it.

    Attributes:
        form: the format of the call's body and answer.
        body: the body's JSON.
        step: the step that makes the call: its name, or an identifier made from its prompt.
        title: the step's name; empty if only its prompt identifies it.
        default: the name of the catalog entry that the client asked for, used if no plan chooses another. None if
            the client named only a step, whose own catalog entry is then used.
        request: the request that the call belongs to.
        is_planned: whether the plan chooses the step's model, so that another model may answer after a failure.
    """

    def __init__(
        self,
        form: Form,
        body: Mapping[str, Any],
        *,
        step: str,
        title: str,
        default: str | None,
        request: OpenRequest,
        is_planned: bool,
    ) -> None:
        self.form, self.body, self.step, self.title, self.default = form, body, step, title, default
        self.request, self.is_planned = request, is_planned


class Exchange:
    """Makes one call for a client and sends its answer. Each object is used once, in a separate task.

    Args:
        vine: chooses and creates the models.
        http: the client that sends requests to the providers' servers.
        record: the file of recorded calls. None records no calls.
        call: the call as its client sent it.
        send: ASGI's ``send``.

    Attributes:
        usages: the usage record of each model that was asked, once the call is over.
    """

    def __init__(self, vine: VineLM, http: Upstream, record: CallFile | None, call: ClientCall, send: Send) -> None:
        self._vine, self._http, self._file, self._call, self._send = vine, http, record, call, send
        self._has_begun = False
        self._entry = ""
        self._answer = call.form.answer()
        self._upstream: UpstreamAnswer | None = None
        self._passes = False
        self.usages: tuple[Usage, ...] = ()
        self._is_stream = bool(call.body.get("stream"))

    async def run(self) -> None:
        """Make the call. Failures become error responses; a cancelled call is recorded as cancelled."""
        started_at, began_s, why = time.time(), time.monotonic(), None
        AMBIENT.set(self._call.request.context)  # for this task only
        try:
            why = await self._run()
        except asyncio.CancelledError:
            why = CUT
            raise
        finally:
            self._record(started_at, time.monotonic() - began_s, why)

    async def _run(self) -> str | None:
        """Make the call and answer the client. Return why the call failed; None if it succeeded or the client has the
        provider's full answer.
        """
        call, adapter = self._call, self._vine.adapter
        try:
            begun = await ChatCall.abegin(adapter, call.step, default=call.default, falls_back=False)
            try:
                async with begun:
                    await self._answered(begun.scope)
            finally:
                self.usages = begun.scope.usages
        except VineLMError as error:
            if isinstance(error, CallError) and self._is_whole(error):
                return None  # the client has seen it
            await self._failed(error)
            return redacted(str(error))[:500]
        except RecursionError:
            await self._refuse(400, "invalid_json", "the body is nested too deeply")
            return "the body is nested too deeply"
        except Exception as error:  # its words may hold a prompt
            _LOG.error("the gateway failed at a call: unexpected %s", type(error).__name__)
            await self._refuse(500, "internal_error", "the gateway failed at this call")
            return f"unexpected {type(error).__name__}"
        return None

    async def _answered(self, scope: InvocationScope) -> None:
        """Send the client the answer of the chosen model. If this model fails before anything was sent, and the step is
        planned, ask another model.
        """
        while True:
            answering: BaseChatModel = scope.answering
            if self._call.form is RESPONSES_FORM:  # a plan of several models does not support it
                answering = getattr(answering, "todays", answering)
            self._entry, self._answer, self._upstream = scope.path[-1], self._call.form.answer(), None
            kept: list[bytes] = []
            try:
                await self._attempt(answering, kept)
            except CallError as error:
                if not self._has_begun and self._call.is_planned and scope.fall_back(answering, error):
                    continue
                if self._is_whole(error):
                    await self._end(kept)
                raise
            await self._end(kept)
            return

    async def _attempt(self, answering: BaseChatModel, kept: list[bytes]) -> None:
        """Ask one model, and send its answer to the client as it arrives. An answer that is not streamed is added to
        ``kept`` instead.
        """
        binding: CallBinding | None = answering.binding if isinstance(answering, RemoteChatModel) else None
        form = self._call.form
        address = None if binding is None else address_of(binding.provider, binding.model, form)
        self._passes = binding is not None and address is not None
        if binding is not None and binding.call.guard is not None and not self._passes:
            refuse_billed_apart(self._call.body)
        if form is RESPONSES_FORM and not self._passes:
            raise ConfigError(
                f"model {self._entry!r} takes no calls of the Responses API here: ask it by /v1/chat/completions",
                code=UNSUPPORTED_CALL,
            )
        pieces = self._translated(answering)
        if binding is not None and address is not None:
            assert isinstance(answering, RemoteChatModel)
            pieces = self._wired(answering, binding, address)
        async with aclosing(pieces):
            async for data in pieces:
                self._entry = getattr(answering, "answered_by", "") or self._entry  # for a proven plan of several models
                if self._is_stream and self._upstream is None:
                    await self._begin(200, _EVENTS, {})
                    if data:
                        await self._send({"type": "http.response.body", "body": data, "more_body": True})
                else:
                    kept.append(data)

    async def _end(self, kept: list[bytes]) -> None:
        """End the answer to the client. If nothing was sent yet, send the answer as a whole from its pieces ``kept``."""
        if not self._has_begun:
            content = b"".join(kept)
            await self._begin(200, _JSON, {"content-length": str(len(content)), **self._told()})
            await self._send({"type": "http.response.body", "body": content})
        else:
            await self._send({"type": "http.response.body", "body": b""})

    def _is_whole(self, error: CallError) -> bool:
        """Return whether the client has received the provider's complete answer, although the call counts as failed."""
        came = self._has_begun or (self._upstream is not None and self._upstream.status == 200)
        return (error.kind in _WHOLE or self._answer.tells_failure) and self._passes and came

    async def _wired(self, chat: RemoteChatModel, binding: CallBinding, address: Any) -> AsyncGenerator[bytes]:
        """Yield the bytes of the provider's answer unchanged, apart from usage that the client did not ask for.

        Args:
            chat: The chat model that makes the call, with retries.
            binding: The model, the provider and the guard of the call.
            address: The provider's address for the client's format.
        """
        call = self._call
        request = wire_request(
            call.form,
            call.body,
            binding.model,
            address,
            is_own=self._entry == call.default,
            is_capped=binding.call.guard is not None,
            refused=binding.inner.refused,
        )
        hides = call.form.adds_usage(call.body)
        sender = WireSender(self._http, binding.provider, (binding.inner, address), call.form, hides_usage=hides)
        self._answer = sender.answer
        try:
            async with aclosing(chat.raw(request, sender)) as pieces:
                async for piece in pieces:
                    self._upstream = sender.upstream
                    yield piece.data  # type: ignore[attr-defined]
        finally:
            self._upstream = sender.upstream

    async def _translated(self, answering: BaseChatModel) -> AsyncGenerator[bytes]:
        """Yield the answer of a model with another format, translated to OpenAI's format."""
        body = self._call.body
        chat: Any = bound_instance(FallbackModel, SingleAttempt(answering))
        messages, options = asked_of(chat, body)
        seen, form = SeenAnswer(), OpenAIAnswer(body)
        if not self._is_stream:
            found = await chat.agenerate_prompt([ChatPromptValue(messages=messages)], **options)
            plain = whole_answer(form, found.generations[0])
            self._answer.read(plain, seen)
            yield json.dumps(plain).encode()
            return
        reader = EventReader(hides_usage=False)
        async for data in aevents(form, chat.astream(messages, **options), tells=False):
            for _, event in reader.feed(data):
                if isinstance(event, dict):
                    self._answer.read(event, seen)
            yield data

    # -- what the client gets ----------------------------------------------------------------------------------------------

    async def _begin(self, status: int, kind: bytes, headers: Mapping[str, str]) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        named = {"x-vinelm-request": self._call.request.name, "x-vinelm-model": self._entry, **headers}
        if kind == _EVENTS:
            named["cache-control"] = "no-cache"
        pairs = [(name.encode("latin-1"), value.encode("utf-8", "replace")) for name, value in named.items() if value]
        await self._send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind), *pairs]})

    def _told(self) -> dict[str, str]:
        found = {} if self._upstream is None else self._upstream.headers
        return {name: found[name] for name in _HEADERS if name in found}

    async def _failed(self, error: VineLMError) -> None:
        """Send the failure to the client, in the provider's own words if its error response can be shown to the client."""
        upstream = self._upstream
        if (
            not self._has_begun and isinstance(error, CallError) and error.kind == "auth"
        ):  # the operator's key, not the client's
            await self._refuse(502, "upstream_auth", "the provider refused the gateway's own key")
        elif (
            not self._has_begun
            and upstream is not None
            and 400 <= upstream.status < 600
            and (content := _shown(upstream.content)) is not None
        ):
            await self._begin(upstream.status, _JSON, {"content-length": str(len(content)), **self._told()})
            await self._send({"type": "http.response.body", "body": content})
        else:
            found = told(error)
            await self._refuse_with(found["status_code"], found["json"])

    async def _refuse(self, status: int, code: str, message: str) -> None:
        await self._refuse_with(status, error_body(status, message, code))

    async def _refuse_with(self, status: int, plain: Mapping[str, Any]) -> None:
        if self._has_begun:
            event = json.dumps(self._call.form.error_event(plain["error"]))
            await self._send({"type": "http.response.body", "body": f"data: {event}\n\n".encode()})
            return
        content = json.dumps(plain).encode()
        await self._begin(status, _JSON, {"content-length": str(len(content))})
        await self._send({"type": "http.response.body", "body": content})

    # -- the record --------------------------------------------------------------------------------------------------------

    def _record(self, started_at: float, seconds: float, why: str | None) -> None:
        record, beside = self._file, self._vine.autopilot
        if beside is not None and (self._upstream is None or why is not None):
            beside = None  # the autopilot has seen a translated answer itself
        if record is None and beside is None:
            return
        call, usage = self._call, self.usages[-1] if self.usages else None
        caller = call.request.context.configurable or {}
        tenant, talk = str(caller.get("tenant") or ""), str(caller.get("thread_id") or "")
        model = self._vine.catalog[self._entry] if self._entry else None
        tokens = usage_of(self._answer.usage)
        is_known = usage is not None and not usage.tokens_estimated
        answer = self._answer.message if why is None else None
        found = {
            "request": scoped(call.request.name, tenant),
            "call": uuid4().hex,
            "conversation": talk and scoped(talk, tenant),
            "step": call.title,
            "model": self._answer.model if model is None else model.model_id,
            "provider": "" if model is None else model.provider,
            "messages": call.form.messages(call.body),
            "tools": tools_of(call.body.get("tools")),
            "response_format": call.form.response_format(call.body),
            "settings": settings_of(call.body),
            "started_at": started_at,
            "seconds": seconds,
            "answer": answer,
            "tokens_in": tokens.tokens_in,
            "tokens_out": tokens.tokens_out,
            "cached_tokens": tokens.cached,
            "cost_usd": usage.cost_usd if usage is not None and is_known else None,
            "error": why,
        }
        if record is not None:
            record.write(found)
        if beside is not None:
            beside.write(found | {"model": self._entry})


class SingleAttempt:
    """A fallback rule that makes a :class:`~vinelm.adapters.calls.fallback_model.FallbackModel` ask only one model,
    because :class:`Exchange` handles fallbacks.
    """

    def __init__(self, answering: BaseChatModel) -> None:
        self.answering = answering

    def fall_back(self, model: BaseChatModel, error: CallError) -> bool:
        """Return False, because there is no other model here."""
        return False


def _shown(content: bytes) -> bytes | None:
    """Return the body of a provider's error response with keys and account numbers removed; None if it is not in the
    format of OpenAI's errors.
    """
    try:
        plain = json.loads(content)
        if len(content) > 1 << 16 or not isinstance(plain, dict) or "error" not in plain:
            return None
        inner = plain["error"] if isinstance(plain["error"], dict) else {"message": str(plain["error"])}
        return json.dumps(cleaned({**plain, "error": inner})).encode()
    except (ValueError, RecursionError):
        return None
