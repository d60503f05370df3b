"""The chat model inside a remote model, with one attempt per call and separate connections per event loop.

It is the chat model that the application or the catalog made, otherwise unchanged. Hidden retries would be paid twice but
recorded once, so the packages' retries are switched off, on a copy. The packages keep one asynchronous HTTP client for the
whole process, whose connections belong to the first event loop that used them ("Event loop is closed" after the first
``asyncio.run``). So each loop gets a separate client, unless the owner (the application) passed a client.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from typing import Any, TypeAlias
from weakref import finalize

from langchain_core.language_models import BaseChatModel

from vinelm.backends.remote.answer_size import BoundedSession, bound_answers, library_of
from vinelm.backends.remote.client_pool import EventLoopClients
from vinelm.backends.remote.deadlines import bound_waits
from vinelm.backends.remote.idle_connections import probe_cheaply
from vinelm.backends.remote.loop import shared_loop
from vinelm.catalog.billed_settings import LIMITS, answers_in, held_in, limit_in, settings_of, speaks_in, stored_in

KEPT = ("callbacks", "tags", "metadata", "cache", "rate_limiter", "verbose", "disable_streaming", "output_version", "profile")
"""LangChain's own settings of a chat model, which also apply to a model that wraps it."""
_WITH_REASONS = ("langchain_openai", "langchain_anthropic", "langchain_google_genai", "langchain_aws", "langchain_ollama")
"""Packages whose whole answers always have a finish reason."""
CONNECTIONS = 10_000
"""Connections of one client: the rate limits bound how many calls run at once, so that no call waits for a pool."""

_SYNC_NAMES = ("root_client", "client", "http_client")
_Clients: TypeAlias = EventLoopClients[tuple[BaseChatModel, bool], BaseChatModel]


async def _nothing() -> None:
    return None


class InnerChat:
    """The chat model that :class:`RemoteChatModel` wraps and calls for one catalog entry. Thread-safe.

    Args:
        chat: the chat model, as the application made it or as the catalog entry describes it.
        remake: makes another chat model with the same settings, for another event loop; None if only the application can do so.
        like: the inner chat model of which this is a copy. Both share what is learnt about refused settings and costs.
        entry_max_tokens: the answer limit in tokens of the catalog entry; None if the calls set the limit themselves.

    Attributes:
        given: the original chat model.
        kept: those settings of the chat model, by name, that also apply to a model that wraps it, such as callbacks and tags.
        is_asynchronous: whether synchronous calls run on an event loop if :meth:`in_time` returns None. False if the
            application has set only a synchronous client, or the model has no asynchronous one.
        has_asynchronous: whether the chat model has an asynchronous client at all; otherwise calls run in threads.
        wants_stream: whether the application has set the chat model to stream even calls that ask for a whole answer.
        states_reasons: contains True if every complete streamed answer has a finish reason, and False if every whole answer has
            one. An answer of that kind without a reason was cut off.
        refused: names of settings that the model has refused in this process.
        answers: number of answers that each call asks for.
        speaks: whether answers may be audio.
        stored: number of parts of each prompt that are stored at the provider.
        own: the chat model's settings that affect the cost of a call, by name.
        body_limit: the answer limit that nested settings put into the request's body, which overrides any field; None without a
            limit.
        rate: the highest observed ratio of a call's cost to its cost at the catalog's price, at least 1. Costs of further calls
            are reserved at this rate.
    """

    def __init__(
        self,
        chat: BaseChatModel,
        remake: Callable[[], BaseChatModel] | None = None,
        *,
        like: InnerChat | None = None,
        entry_max_tokens: int | None = None,
    ) -> None:
        self.given = chat
        # An entry's key and prompt go to the place that the catalog names; an owner's client keeps its behaviour.
        self._loops: _Clients = EventLoopClients(partial(_for_threads, chat, remake), partial(_for_this_loop, chat, remake))
        # No code closes a chat model's connections explicitly: they end with the last call that may be made with it.
        finalize(self, _let_go, self._loops).atexit = False
        self.kept: Mapping[str, Any] = {name: getattr(chat, name) for name in KEPT if getattr(chat, name, None) is not None}
        is_owned = getattr(chat, "http_client", None) is not None and getattr(chat, "http_async_client", None) is None
        self.has_asynchronous = type(chat)._agenerate is not BaseChatModel._agenerate
        self.is_asynchronous = self.has_asynchronous and not is_owned
        self.wants_stream = getattr(chat, "streaming", False) is True
        self.states_reasons = {True, False} if package_of(chat) in _WITH_REASONS else set()
        self.refused: set[str] = set() if like is None else like.refused
        self._rates: list[float] = [1.0] if like is None else like._rates
        own = self.own = settings_of(chat)
        self.answers, self.speaks, self.stored = answers_in(own), speaks_in(own), stored_in(own)
        self.body_limit = limit_in(*held_in(own))
        self.entry_max_tokens = entry_max_tokens

    @property
    def rate(self) -> float:
        """The highest observed ratio of a call's cost to its cost at the catalog's price; at least 1."""
        return self._rates[0]

    def saw_rate(self, rate: float) -> None:
        """Set :attr:`rate` to ``rate`` if that is higher: the ratio of a call's cost to its cost at the catalog's price."""
        self._rates[0] = max(self._rates[0], rate)

    def streams(self, tools: Any) -> bool:
        """Return whether the chat model streams answers with these tools bound."""
        kind, off = type(self.given), self.given.disable_streaming
        is_native = kind._stream is not BaseChatModel._stream or (
            self.is_asynchronous and kind._astream is not BaseChatModel._astream
        )
        return is_native and off is not True and not (off == "tool_calling" and bool(tools))

    def sync(self) -> BaseChatModel:
        """Return the chat model for synchronous calls."""
        return self._loops.sync()[0]

    def in_time(self) -> BaseChatModel | None:
        """Return the chat model for a synchronous call in this thread; None if no deadline can end its waits.

        In that case the call must run in another thread or on an event loop.
        """
        chat, is_bound = self._loops.sync()
        return chat if is_bound else None

    async def here(self) -> BaseChatModel:
        """Return the chat model for asynchronous calls on the running event loop, to which its connections belong."""
        return await self._loops.asynchronous()

    def close(self) -> None:
        """Close the connections of synchronous calls; the next call opens new connections."""
        self._loops.close(shared_loop())


def _for_this_loop(
    chat: BaseChatModel, remake: Callable[[], BaseChatModel] | None
) -> tuple[BaseChatModel, Callable[[], Awaitable[None]]]:
    own = chat if remake is None else remake()
    made, http = with_own_connections(one_attempt(own), is_async=True, follow_redirects=remake is None)
    if http is not None:
        return made, http.aclose
    return made, _nothing if remake is None else _closer(own)


def _for_threads(
    chat: BaseChatModel, remake: Callable[[], BaseChatModel] | None
) -> tuple[tuple[BaseChatModel, bool], Callable[[], None]]:
    """Prepare a chat model for synchronous calls.

    Returns:
        ((the chat model, whether a deadline ends each of its waits), a function that closes its connections)
    """
    one = one_attempt(chat)
    is_packages = type(chat)._generate.__module__.startswith(("langchain_", "vinelm."))  # an owner's class may wait elsewhere
    if not is_packages or any(getattr(chat, name, None) is not None for name in ("http_client", "http_async_client")):
        return (one, False), lambda: None
    made, http = with_own_connections(one, is_async=False, follow_redirects=remake is None)
    if http is None:
        return (one, False), lambda: None
    if not bound_waits(http):
        http.close()
        return (one, False), lambda: None
    return (made, True), http.close


def _let_go(loops: _Clients) -> None:
    loops.close(shared_loop())


def package_of(chat: BaseChatModel) -> str:
    """Return the LangChain package that defines a chat model's class or a base class, else the class's own module."""
    return _package_of(type(chat))


@cache
def _package_of(kind: type[BaseChatModel]) -> str:
    homes = [base.__module__.partition(".")[0] for base in kind.__mro__]
    return next((home for home in homes if home.startswith("langchain_") and home != "langchain_core"), homes[0])


def setting_of(chat: BaseChatModel, name: str) -> Any:
    """Return an attribute of a chat model, or None if it is missing. Avoids pydantic's slow lookup of missing attributes."""
    return getattr(chat, name, None) if _may_have(type(chat), name) else None


@cache
def _may_have(kind: type[BaseChatModel], name: str) -> bool:
    return name in kind.model_fields or hasattr(kind, name) or kind.model_config.get("extra") == "allow"


def limit_field(chat: BaseChatModel) -> str | None:
    """Return the name of the chat model's field that limits the length of an answer; None if it has no such field."""
    return next((name for name in LIMITS if name in type(chat).model_fields), None)


def limit_of(chat: BaseChatModel) -> int | None:
    """Return the maximum number of tokens of an answer that the chat model's settings allow; None if they set no limit."""
    found = (setting_of(chat, name) for name in LIMITS)
    return next((one for one in found if type(one) is int and one > 0), None)


def one_attempt(chat: BaseChatModel) -> BaseChatModel:
    """Return a copy of ``chat`` that makes one attempt per call and reports the usage of streams. It shares the connections of
    ``chat``.
    """
    update: dict[str, Any] = {}
    if "stream_usage" in type(chat).model_fields and getattr(chat, "stream_usage", None) is not True:
        update["stream_usage"] = True
    if getattr(chat, "root_async_client", None) is not None:  # langchain-openai, and what is derived from it
        for root, leaf in (("root_client", "client"), ("root_async_client", "async_client")):
            if (client := getattr(chat, root, None)) is not None:
                update[root] = _like(client, max_retries=0)
                update[leaf] = update[root].chat.completions
    elif bedrock := _bedrock_client(chat):
        update |= bedrock
    else:
        if "max_retries" in type(chat).model_fields:
            # google-genai reads 0 as its default of several attempts, and 1 as one.
            update["max_retries"] = 1 if package_of(chat).startswith("langchain_google") else 0
        held = {name: _without_retries(one) for name, one in chat.__dict__.items() if name in type(chat).model_fields}
        update |= {name: one for name, one in held.items() if one is not None}
    if not update:
        return chat
    made = chat.model_copy(update=update)
    for name in ("_client", "_async_client", "_client_params"):  # langchain-anthropic keeps clients with the old setting
        made.__dict__.pop(name, None)
    return made


def with_own_connections(
    chat: BaseChatModel,
    *,
    is_async: bool,
    follow_redirects: bool = True,
    answer: Callable[[Any], Any] | None = None,
) -> tuple[BaseChatModel, Any | None]:
    """Return a copy of the chat model with a separate HTTP client, and that client.

    With ``answer``, the client sends nothing: the function returns the response to a request. A chat model of Gemini is changed
    in place and returned itself. If the application has set the chat model's HTTP client, or the client cannot be replaced,
    return the chat model itself and None.
    """
    if getattr(chat, "root_async_client", None) is not None:
        root_name, leaf, given = ("root_async_client", "async_client", "http_async_client") if is_async else _SYNC_NAMES
        root = getattr(chat, root_name, None)
        if root is None or getattr(chat, given, None) is not None:
            return chat, None
        import openai

        kinds: Any = getattr(chat, "http_clients", (openai.DefaultHttpxClient, openai.DefaultAsyncHttpxClient))
        how = _how(library_of(openai.DefaultHttpxClient), follow_redirects, answer)
        http: Any = kinds[is_async](base_url=root.base_url, timeout=root.timeout, **how)
        _prepare(http, is_async=is_async)
        own = _like(root, http_client=http)
        return chat.model_copy(update={root_name: own, leaf: own.chat.completions}), http
    if package_of(chat) == "langchain_anthropic":
        import anthropic

        settings = dict(chat._client_params)  # type: ignore[attr-defined]
        timeout = {"timeout": settings["timeout"]} if settings.get("timeout") is not None else {}
        if answer is None and (proxy := getattr(chat, "anthropic_proxy", None)):
            timeout["proxy"] = proxy
        how = _how(library_of(anthropic.DefaultHttpxClient), follow_redirects, answer)
        kind: Any = anthropic.DefaultAsyncHttpxClient if is_async else anthropic.DefaultHttpxClient
        http = kind(base_url=settings["base_url"], **how, **timeout)
        _prepare(http, is_async=is_async)
        made = chat.model_copy()
        sdk: Any = anthropic.AsyncClient if is_async else anthropic.Client
        made.__dict__["_async_client" if is_async else "_client"] = sdk(**settings, http_client=http)
        return made, http
    api: Any = getattr(getattr(chat, "client", None), "_api_client", None)
    # google-genai, unless the client is an owner's, which is not ours to change.
    if is_async and not follow_redirects and getattr(api, "_async_httpx_client", None) is not None:
        library = library_of(api._async_httpx_client.__class__)
        http = library.AsyncClient(**{**api._async_httpx_client_args, "limits": _limits(library), "follow_redirects": False})
        _prepare(http, is_async=True)
        # Passed under this name of setting: if aiohttp is installed, the SDK would otherwise use it, and repeat failed requests
        # itself.
        api._http_options.httpx_async_client = api._async_httpx_client = http
        return chat, http
    return chat, None


def _prepare(http: Any, *, is_async: bool) -> None:
    """Change an HTTP client that we created: limit the size of its answers, and make checks of its idle connections cheap."""
    bound_answers(http, is_async=is_async)
    if is_async:
        probe_cheaply(http)


def _closer(chat: Any) -> Callable[[], Awaitable[None]]:
    """Return a function that closes the asynchronous connections of a chat model that VineLM itself made."""
    if package_of(chat) == "langchain_google_genai" and (client := getattr(chat, "client", None)) is not None:
        close: Callable[[], Awaitable[None]] = client.aio.aclose
        return close
    return _nothing


def _like(client: Any, **options: Any) -> Any:
    """Return a copy of the OpenAI client with other options, and with the same organization and project.

    A plain copy would read organization and project from the environment.
    """
    made = client.with_options(**options)
    made.organization, made.project = client.organization, client.project
    return made


def _without_retries(held: Any) -> Any:
    """Return a copy of ``held`` that does not retry, if it is an SDK client or an object that contains one; None otherwise.

    Packages such as Groq's read ``max_retries`` only when they create the chat model, so a later change has no effect.
    """
    if isinstance(held, type):
        return None
    if type(getattr(held, "max_retries", None)) is int and callable(getattr(held, "with_options", None)):
        return _like(held, max_retries=0) if hasattr(held, "organization") else held.with_options(max_retries=0)
    inner = getattr(held, "_client", None)
    client = None if inner is None else _without_retries(inner)
    return None if client is None else type(held)(client)


def _limits(library: Any) -> Any:
    return library.Limits(max_connections=CONNECTIONS, max_keepalive_connections=1000, keepalive_expiry=5.0)


def _how(library: Any, follow_redirects: bool, answer: Callable[[Any], Any] | None) -> dict[str, Any]:
    """Return the settings of an HTTP client of ``library``: its limits, redirects and TLS.

    With ``answer``, the client's requests are answered by this function instead.
    """
    if answer is not None:
        return {"limits": _limits(library), "transport": library.MockTransport(answer)}
    verify = _tls_context(library, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return {"limits": _limits(library), "follow_redirects": follow_redirects, "verify": verify}


@cache
def _tls_context(library: Any, *_environment: str | None) -> Any:
    """Return the TLS context that ``library`` would make for each client, one for all: reading the certificates takes 20 ms.

    Event loops and forked children share it, too. It depends on two variables of the environment, passed as ``_environment``.
    """
    return library.create_ssl_context() if hasattr(library, "create_ssl_context") else True


def _bedrock_client(chat: Any) -> dict[str, Any]:
    """Return ``{"client": copy}`` with a copy of the chat model's Bedrock client that does not retry; empty without such a
    client.

    In the copy, botocore's retry handler is removed. The copy uses the connections of the original client, and limits the size
    of answers. A new client would need the owner's credentials, and could not refresh them as the original client does.
    """
    client: Any = getattr(chat, "client", None)
    if not hasattr(client, "_endpoint"):
        return {}
    made = object.__new__(type(client))  # copy.copy() asks for methods, which a client looks up in itself
    made.__dict__.update(client.__dict__)
    made._endpoint = copy.copy(client._endpoint)
    events = copy.copy(client._endpoint._event_emitter)
    service = client.meta.service_model.service_id.hyphenize()
    events.unregister(f"needs-retry.{service}", unique_id=f"retry-config-{service}")
    made._endpoint._event_emitter = events
    made._endpoint.http_session = BoundedSession(client._endpoint.http_session)
    return {"client": made}
