"""Makes equal calls only once: later ones get the stored answer, or wait for the call in flight.

The states of a repeatable call. A call leads if it is made while equal calls wait for its answer::

    asked       a stored answer exists: answered, for $0
       |        an equal call is in flight: wait for its answer; without one, authorize this call
       |
    authorized  the budget has reserved the call's maximum cost. Only an authorized call may lead: otherwise it might wait
       |        for money, while calls that wait for its answer hold that money reserved
       |
    leads       no equal call leads: this call is made, its answer is stored and passed to all waiting calls
                an equal call leads: wait for its answer; if it has none, one of the waiting calls leads instead
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Protocol

from langchain_core.messages import AIMessage, BaseMessage, message_to_dict, messages_from_dict
from langchain_core.outputs import ChatGeneration, ChatResult

from vinelm.backends.remote.inner import KEPT, InnerChat, setting_of
from vinelm.backends.remote.meter import ModelRequest
from vinelm.catalog import Catalog, Model
from vinelm.errors import StoreError
from vinelm.rows.observation import Usage

_PLACES = ("extra_body", "model_kwargs", "inferenceConfig")
"""Settings that contain other settings, which override those at the top level."""


class KeepsCalls(Protocol):
    """The interface of a storage for calls' answers. A store implements it in
    :class:`vinelm.traces.served.kept_calls.KeptCalls`.
    """

    def find(self, digest: str) -> str | None:
        """Return the stored answer of a call; None if it is missing or too old."""

    def keep(self, digest: str, said: str) -> None:
        """Store the answer of a call durably under the call's digest; ``said`` is the answer as text (see
        :func:`kept_text`).
        """


class RecordedCalls(Protocol):
    """The recorded calls of a trace, whose answers are reused for equal calls.

    Attributes:
        hits: Number of calls that were found in the trace.
    """

    hits: int

    @property
    def line(self) -> str:
        """A summary of the recorded calls in one line."""

    def answers(self, catalog: Catalog) -> Iterable[tuple[str, str]]:
        """Yield pairs (:func:`recorded_digest`, :func:`recorded_text`) for each recorded call.

        A call whose model has several entries in the catalog gives a pair for each of these entries.
        """


class NothingKept:
    """A storage that stores no answers, for a process that asks another process for them; implements :class:`KeepsCalls`."""

    def find(self, digest: str) -> str | None:
        """Return None: nothing is stored."""

    def keep(self, digest: str, said: str) -> None:
        """Do nothing: no answer is stored."""


class EqualCalls:
    """Finds answers to repeatable calls (temperature 0, or a deterministic stage): stored answers, and answers of calls in
    flight.

    Thread-safe, and safe across event loops.

    Attributes:
        kept, has_recorded: The arguments of the same names.
        recorded_hits: Number of calls that were found among the recorded calls.

    Args:
        kept: The stored answers.
        deterministic: Stages whose calls are repeatable at any temperature; stages may be added later.
        has_recorded: Whether ``kept`` has answers of a trace, stored under :func:`recorded_digest`. They are used for equal
            prompts at any temperature.
    """

    def __init__(self, kept: KeepsCalls, deterministic: Collection[str] = (), *, has_recorded: bool = False) -> None:
        self.kept, self._deterministic = kept, deterministic
        self.has_recorded, self.recorded_hits = has_recorded, 0
        self._lock = threading.Lock()
        self._waiting: dict[str, list[tuple[Future[str | None], bool]]] = {}

    def digest(self, stage: str, model: Model, inner: InnerChat, request: ModelRequest) -> str | None:
        """Return the digest of a call; None if it is not repeatable."""
        if self.has_recorded and request.answers == 1:
            found = recorded_digest(model.name, request.messages)
            if self.is_recorded(found):
                return found
        if request.answers != 1 or not (stage in self._deterministic or _is_cold(inner, request)) or not _is_told(inner):
            return None
        return digest_of(model, inner, request)

    def is_recorded(self, digest: str) -> bool:
        """Return whether a call is among the recorded calls; if so, count it in :attr:`recorded_hits`."""
        is_there = self.kept.find(digest) is not None
        with self._lock:
            self.recorded_hits += is_there
        return is_there

    def ask(self, digest: str, *, leads: bool) -> Future[str | None]:
        """Return a future of the answer to a call: the stored answer, or the answer of an equal call in flight.

        The future's result is None if there is neither. A caller with ``leads`` must then make the call, since later equal
        calls wait for it, and call :meth:`end`. A caller without ``leads`` only looks for an answer; no call waits for it.
        """
        future: Future[str | None] = Future()
        with self._lock:
            others = self._waiting.get(digest)
            if others is not None:
                others.append((future, leads))
                return future
            if leads:  # before the lookup, which may take time: an answer that is kept meanwhile is found
                self._waiting[digest] = []
        try:
            found = self.kept.find(digest)
        except BaseException:
            if leads:
                self._tell(digest, None)
            raise
        if leads and found is not None:
            self._tell(digest, found)
        future.set_result(found)
        return future

    def end(self, digest: str, said: str | None) -> None:
        """End a call that was made for all equal calls: store its answer ``said`` and pass it to the waiting calls.

        If ``said`` is None, the call has no answer, and the first waiting call that asked with ``leads`` is made instead.
        """
        try:
            if said is not None:
                with suppress(StoreError):  # the call's price cannot be written either, and that is reported
                    self.kept.keep(digest, said)
        finally:
            self._tell(digest, said)

    def _tell(self, digest: str, said: str | None) -> None:
        with self._lock:
            waiting = self._waiting.pop(digest)
        # With an answer all who wait get it. Without one the first that can still make the call gets None and leads; those who
        # only asked whether something is known get None too, and the rest wait for the new leader.
        heir_at = None
        for at, (future, leads) in enumerate(waiting):
            if said is None and leads and heir_at is not None:
                continue
            if not future.set_running_or_notify_cancel():  # it no longer waits
                continue
            if said is None and leads:
                heir_at = at
                with self._lock:  # callers that arrived in between also wait for the new leader
                    self._waiting[digest] = [one for one in waiting[at + 1 :] if one[1]] + self._waiting.get(digest, [])
            future.set_result(said)


def digest_of(model: Model, inner: InnerChat, request: ModelRequest) -> str:
    """Return the digest of everything that determines a call's answer: the model, its settings and the request."""
    body = request.options.get("extra_body")
    if isinstance(body, Mapping) and "priority" in body:  # the priority decides when a call is answered, not what
        body = {key: one for key, one in body.items() if key != "priority"}
        rest = {key: one for key, one in request.options.items() if key != "extra_body"}
        request = replace(request, options={**rest, "extra_body": body} if body else rest)
    told = [
        [model.provider, model.model_id, model.engine, dict(model.options), _class_of(inner), _set(inner)],
        [(message.type, message.name, getattr(message, "tool_call_id", None)) for message in request.messages],
        [request.prompt, request.stop, request.limit, sorted(request.dropped)],
    ]
    plain = json.dumps(told, default=repr, sort_keys=True)
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def recorded_digest(model: str, messages: Sequence[BaseMessage]) -> str:
    """Return the digest of a recorded call. It depends only on the model and the prompt, since a trace may lack some settings.

    Tool-call ids and the division of an answer into blocks are ignored.
    """
    told = [model, [_turn(message) for message in messages]]
    plain = json.dumps(told, default=repr, sort_keys=True)
    return f"recorded {hashlib.sha256(plain.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


def _turn(message: BaseMessage) -> list[Any]:
    if isinstance(message, AIMessage):
        return [message.type, str(message.text), [[call["name"], call["args"]] for call in message.tool_calls]]
    blocks = [] if isinstance(message.content, str) else message.content
    others = [one for one in blocks if not isinstance(one, str) and one.get("type") != "text"]
    return [message.type, str(message.text), others]


def recorded_text(message: AIMessage, model: str, usd: float, seconds: float | None, **tokens: int | None) -> str:
    """Return a recorded answer as text to store, in the format of :func:`kept_text`.

    Args:
        message: The answer.
        model: The model's name in the catalog.
        usd: Cost of the call in dollars.
        seconds: Latency of the call in seconds; None if unknown.
        **tokens: Fields of :class:`~vinelm.rows.observation.Usage`.
    """
    known = {name: count for name, count in tokens.items() if count is not None}
    took = math.nan if seconds is None else seconds
    usage = {"model": model, "cost_usd": usd, "list_usd": usd, "latency_s": took, **known}
    return json.dumps({"message": message_to_dict(message), "info": None, "output": None, "usage": usage})


def _class_of(inner: InnerChat) -> str:
    kind = type(inner.given)
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_told(inner: InnerChat) -> bool:
    """Return whether all settings of an inner chat model that affect its answers can be written as text.

    True for chat models of LangChain's packages and of the catalog. False for a class of the application with a setting that
    has no text form, such as a function: two such objects may differ although their texts are equal.
    """
    home = _class_of(inner).partition(".")[0]
    if home == "vinelm" or (home.startswith("langchain_") and home != "langchain_core"):
        return True
    return all(value is None or name in KEPT or _plain(value) is not None for name, value in vars(inner.given).items())


def _set(inner: InnerChat) -> dict[str, Any]:
    """Return the inner chat model's settings by name, without clients, keys and values that have no text form."""
    return {name: one for name, value in vars(inner.given).items() if name not in KEPT and (one := _plain(value)) is not None}


def _plain(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value, sort_keys=True))
    except (TypeError, ValueError):
        return None


def _is_cold(inner: InnerChat, request: ModelRequest) -> bool:
    """Return whether a call has temperature 0: as set by the call or, if it sets none, by the chat model.

    False if neither sets a temperature, or if the model refuses the setting.
    """
    if "temperature" in request.dropped:
        return False
    places = [request.options, *(request.options.get(name) for name in _PLACES)]
    asked = [one["temperature"] for one in places if isinstance(one, Mapping) and one.get("temperature") is not None]
    if not asked:
        places = [setting_of(inner.given, name) for name in _PLACES]
        asked = [one["temperature"] for one in places if isinstance(one, Mapping) and one.get("temperature") is not None]
        own = setting_of(inner.given, "temperature")
        asked += [] if own is None else [own]
    return bool(asked) and all(one == 0 for one in asked)


def kept_text(result: ChatResult | None, usage: Usage) -> str | None:
    """Return an answer and its usage as text to store, or None if the answer has no text form."""
    if result is None or len(result.generations) != 1:
        return None
    generation = result.generations[0]
    told = {"message": message_to_dict(generation.message), "info": generation.generation_info, "output": result.llm_output}
    measured = {key: one for key, one in asdict(usage).items() if one is not None}
    try:
        return json.dumps({**told, "usage": measured}, allow_nan=False)
    except (TypeError, ValueError):
        return None


def answer_in(said: str) -> tuple[ChatResult, Usage]:
    """Return a stored answer as a new message without an id, and its usage record.

    The record has the cost $0, the latency of the first call, and that call's cost in the field ``list_usd``.
    """
    told = json.loads(said)
    (message,) = messages_from_dict([told["message"]])
    message.id = None  # LangGraph treats two messages with one id as the same
    if not isinstance(message, AIMessage):
        raise ValueError("no answer of a chat model")
    result = ChatResult(generations=[ChatGeneration(message=message, generation_info=told["info"])], llm_output=told["output"])
    first = Usage(**told["usage"])
    paid_usd = first.cost_usd if first.list_usd is None else first.list_usd
    return result, replace(first, cost_usd=0.0, list_usd=paid_usd, retries=0, waited_s=0.0, provider_request_id=None)
