"""Can every model of a catalog be called? What needs no call first; then, if asked, one cheap call to each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Protocol, runtime_checkable

from langchain_core.messages import BaseMessage, HumanMessage

from vinelm.backends.registry import PROVIDERS, create_backends
from vinelm.catalog import Catalog, Model
from vinelm.clock import WallClock
from vinelm.errors import CallError, FailureKind, InputError
from vinelm.observation import Usage
from vinelm.protocols import Backend, CallContext, PricesCalls

OFFLINE = ("recorded", "simulated")
"""Providers that answer from a workflow's requests: there is nobody to call."""
PROMPT = "Count from one to twenty in English words, separated by commas. Write nothing else."
MAX_TOKENS = 128
OLD_PRICE_DAYS = 365
REACHED: tuple[FailureKind, ...] = ("truncated", "empty", "content_filter")
"""Failures of a call that the model did answer: good enough for a checkup."""


@runtime_checkable
class KnowsContext(Protocol):
    """A backend whose server says how long a model's context is."""

    def context_tokens(self, model: Model) -> int | None:
        """Tokens of prompt and answer together; None where the server does not say. Asks the server, costs nothing."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What one call showed. ``tokens_per_s`` counts from the first token on; None where that cannot be told."""

    latency_s: float
    ttft_s: float | None
    tokens_in: int | None
    tokens_out: int | None
    is_estimated: bool
    cost_usd: float
    failure: FailureKind | None
    detail: str | None

    @property
    def is_reached(self) -> bool:
        """The model answered, if only with the beginning of an answer."""
        return self.failure is None or self.failure in REACHED

    @property
    def tokens_per_s(self) -> float | None:
        """Output tokens after the first, by the time from the first to the end."""
        if self.ttft_s is None or self.tokens_out is None or self.tokens_out < 2 or self.latency_s <= self.ttft_s:
            return None
        return (self.tokens_out - 1) / (self.latency_s - self.ttft_s)


@dataclass(frozen=True, kw_only=True)
class Checkup:
    """One model: what has to be mended, what is worth knowing, and what the call showed (None: none was made)."""

    model: Model
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)
    upper_bound_usd: float | None = None
    context_tokens: int | None = None
    reply: Reply | None = None

    @property
    def is_ok(self) -> bool:
        """Nothing has to be mended."""
        return not self.problems


def examine(model: Model, settings: Mapping[str, Mapping[str, Any]], *, today: date, is_called: bool) -> Checkup:
    """The checkup of one model. ``settings`` are the catalog's, by provider. Makes one call, unrepeated, if ``is_called``."""
    if model.provider not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        return Checkup(model=model, problems=(f"unknown provider {model.provider!r}: known are {known}",))
    table = settings.get(model.provider, {})
    found = Checkup(model=model, problems=_missing_key(model), notes=_old_price(model, today), limits=_limits(model, table))
    if model.provider in OFFLINE:
        return replace(found, notes=(*found.notes, f"{model.provider}: answers from the workflow's requests, nobody is called"))
    if not found.is_ok:
        return found
    try:
        return _asked(found, table, is_called=is_called)
    except InputError as error:
        return replace(found, problems=(*found.problems, _without_name(model, str(error))))


def faults_of_tables(models: Sequence[Model], backends: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is wrong with a catalog as a whole: names, ``[backend.NAME]`` tables, limits of engines that no model has."""
    try:
        catalog = Catalog(models, backends)
    except InputError as error:
        return [str(error)]
    faults = []
    for name in backends:
        mine = [model for model in catalog.models if model.provider == name]
        if name not in PROVIDERS:
            faults.append(f"[backend.{name}]: unknown provider {name!r}: known are {', '.join(PROVIDERS)}")
        elif not mine:
            faults.append(f"[backend.{name}] has no effect: no model of the catalog has provider = {name!r}")
        elif name not in OFFLINE:
            try:
                _close(create_backends(Catalog(mine, {name: backends[name]})))
            except InputError as error:
                faults += [str(error)] if str(error).startswith("[backend.") else []  # else it is a model's own
    return faults


def _missing_key(model: Model) -> tuple[str, ...]:
    if model.api_key_env is None or os.environ.get(model.api_key_env, "").strip():
        return ()
    return (f"environment variable {model.api_key_env} is not set: put the API key there",)


def _old_price(model: Model, today: date) -> tuple[str, ...]:
    days = (today - model.price.as_of).days
    if days <= OLD_PRICE_DAYS:
        return ()
    return (f"its price was read {days} days ago: compare it with {model.price.source}",)


def _limits(model: Model, table: Mapping[str, Any]) -> Mapping[str, Any]:
    limits = table.get("limits", {})
    found = limits.get(model.engine, {}) if isinstance(limits, Mapping) else {}
    return found if isinstance(found, Mapping) else {}


def _asked(found: Checkup, table: Mapping[str, Any], *, is_called: bool) -> Checkup:
    model = found.model
    own = {**{key: value for key, value in table.items() if key != "limits"}, "max_retries": 0}
    backends = create_backends(Catalog([model], {model.provider: own}))
    try:
        backend = backends[model.provider]
        messages: list[BaseMessage] = [HumanMessage(PROMPT)]
        usages: list[Usage] = []
        chat = backend.chat_model(model, CallContext(stage="doctor", prefix=(), clock=WallClock(), on_usage=usages.append))
        options: dict[str, Any] = {"max_tokens": min(MAX_TOKENS, model.max_tokens)}
        if isinstance(backend, PricesCalls):
            found = replace(found, upper_bound_usd=backend.upper_bound_usd(model, messages, **options))
        if not is_called:
            return found
        failed: CallError | None = None
        try:
            chat.invoke(messages, **options)
        except CallError as error:
            failed = error
        found = _with_reply(found, usages[-1], failed)
        return _with_context(found, backend) if found.is_ok else found
    finally:
        _close(backends)


def _with_reply(found: Checkup, usage: Usage, failed: CallError | None) -> Checkup:
    reply = Reply(
        latency_s=usage.latency_s,
        ttft_s=usage.ttft_s,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        is_estimated=usage.tokens_estimated,
        cost_usd=usage.cost_usd,
        failure=usage.failure,
        detail=None if failed is None else _without_name(found.model, str(failed)),
    )
    problems, notes = found.problems, found.notes
    if not reply.is_reached:
        where = f": is {found.model.api_base} up?" if reply.failure == "server" and found.model.api_base else ""
        problems = (*problems, f"{reply.detail}{where}")
    elif reply.failure == "empty":
        notes = (*notes, f"wrote no text within {MAX_TOKENS} tokens: a model that thinks first needs a larger max_tokens")
    elif reply.failure == "content_filter":
        notes = (*notes, "its content filter stopped the answer to a harmless question")
    if reply.is_estimated and reply.is_reached:
        notes = (*notes, "the server counts no tokens: costs are estimated from the text's length")
    return replace(found, reply=reply, problems=problems, notes=notes)


def _with_context(found: Checkup, backend: Backend) -> Checkup:
    if not isinstance(backend, KnowsContext):
        return found
    tokens, problems = backend.context_tokens(found.model), found.problems
    if tokens is not None and found.model.max_tokens >= tokens:
        problems = (
            *problems,
            f"max_tokens = {found.model.max_tokens} leaves no room for a prompt in {tokens} tokens: lower it",
        )
    return replace(found, context_tokens=tokens, problems=problems)


def _without_name(model: Model, text: str) -> str:
    return text.removeprefix(f"model {model.name!r}: ").removeprefix(f"{model.name}: ")


def _close(backends: Mapping[str, Backend]) -> None:
    for backend in backends.values():
        close = getattr(backend, "close", None)
        if close is not None:
            close()
