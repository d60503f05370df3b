"""Diagnoses a catalog: checks whether each model can be called, without calling it or, on request, with one short call."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Protocol, runtime_checkable

from langchain_core.messages import BaseMessage, HumanMessage

from vinelm.backends.registry import PROVIDERS, create_backends
from vinelm.catalog import Catalog, Model
from vinelm.catalog.prices import is_old, old_price_cure
from vinelm.clock import WallClock
from vinelm.errors import CallError, ConfigError, FailureKind, InputError
from vinelm.meant import did_you_mean
from vinelm.requests.protocols import Backend, CallContext, PricesCalls
from vinelm.rows.observation import Usage

OFFLINE = ("recorded", "simulated")
"""Providers that answer from a workflow's requests: there is no server to call."""
PROMPT = "Count from one to twenty in English words, separated by commas. Write nothing else."
MAX_TOKENS = 128
REACHED: tuple[FailureKind, ...] = ("truncated", "empty", "content_filter")
"""Failures of calls that the model did answer: they prove that it can be reached."""


@runtime_checkable
class KnowsContext(Protocol):
    """A backend whose server reports a model's context length."""

    def context_tokens(self, model: Model) -> int | None:
        """Return the context length in tokens (prompt and answer); None if the server does not report it. Costs nothing."""


@dataclass(frozen=True, kw_only=True)
class CallProbe:
    """The measurements of one short call to a model.

    ``ttft_s`` is the time to the first token. ``is_estimated`` tells whether the token counts are estimates. ``failure`` is the
    kind of failure and ``detail`` its message; both are None if the call succeeded.
    """

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
        """Whether the model answered, at least in part."""
        return self.failure is None or self.failure in REACHED

    @property
    def tokens_per_s(self) -> float | None:
        """Output tokens per second after the first token; None if it cannot be computed."""
        if self.ttft_s is None or self.tokens_out is None or self.tokens_out < 2 or self.latency_s <= self.ttft_s:
            return None
        return (self.tokens_out - 1) / (self.latency_s - self.ttft_s)


@dataclass(frozen=True, kw_only=True)
class ModelDiagnosis:
    """The diagnosis of one model.

    Attributes:
        model: the model.
        problems: what has to be fixed.
        notes: what is worth knowing, but no problem.
        limits: the rate limits of the model's engine, as the catalog states them.
        upper_bound_usd: the maximum cost of the short call in dollars; None if it was not computed.
        context_tokens: the context length in tokens; None if it is not known.
        probe: the measurements of the short call; None if no call was made.
    """

    model: Model
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)
    upper_bound_usd: float | None = None
    context_tokens: int | None = None
    probe: CallProbe | None = None

    @property
    def is_ok(self) -> bool:
        """Whether there are no problems to fix."""
        return not self.problems


def diagnose(model: Model, settings: Mapping[str, Mapping[str, Any]], *, today: date, is_called: bool) -> ModelDiagnosis:
    """Check one model, and return its diagnosis.

    Args:
        model: The model.
        settings: The catalog's ``[backend.NAME]`` tables, by provider.
        today: The current date, to find prices that are too old.
        is_called: Whether to also make one short call, without retries, which spends money.
    """
    if model.provider not in PROVIDERS:
        known = ", ".join(PROVIDERS)
        return ModelDiagnosis(
            model=model,
            problems=(f"unknown provider {model.provider!r}{did_you_mean(model.provider, PROVIDERS)}: known are {known}",),
        )
    table = settings.get(model.provider, {})
    notes: tuple[str, ...] = ()
    if is_old(model, today):
        notes = (f"its price was read {(today - model.price.as_of).days} days ago: {old_price_cure(model)}",)
    found = ModelDiagnosis(model=model, problems=_missing_key(model), notes=notes, limits=_limits(model, table))
    if model.provider in OFFLINE:
        return replace(
            found, notes=(*found.notes, f"{model.provider}: answers from the workflow's requests, no server is called")
        )
    if not found.is_ok:
        return found
    try:
        return _asked(found, table, is_called=is_called)
    except InputError as error:
        return replace(found, problems=(*found.problems, _without_name(model, str(error))))


def catalog_problems(models: Sequence[Model], backends: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the problems of a catalog as a whole: conflicting model names, invalid ``[backend.NAME]`` tables, and limits for
    unknown engines.
    """
    try:
        catalog = Catalog(models, backends)
    except InputError as error:
        return [str(error)]
    faults = []
    for name in backends:
        mine = [model for model in catalog.models if model.provider == name]
        if name not in PROVIDERS:
            faults.append(
                f"[backend.{name}]: unknown provider {name!r}{did_you_mean(name, PROVIDERS)}: known are {', '.join(PROVIDERS)}"
            )
        elif not mine:
            faults.append(f"[backend.{name}] has no effect: no model of the catalog has provider = {name!r}")
        elif name not in OFFLINE:
            try:
                _close(create_backends(Catalog(mine, {name: backends[name]})))
            except InputError as error:
                faults += [str(error)] if str(error).startswith("[backend.") else []  # else it is a model's own
    return faults


def require_keys(models: Iterable[Model]) -> None:
    """Check that the environment variable for each model's API key is set. Commands do this before they write a file or call a
    model.

    Raises:
        ConfigError: The environment variable that a model names for its key is not set.
    """
    for model in models:
        for problem in _missing_key(model):
            raise ConfigError(f"model {model.name!r}: {problem}")


def _missing_key(model: Model) -> tuple[str, ...]:
    if model.api_key_env is None or os.environ.get(model.api_key_env, "").strip():
        return ()
    return (f"environment variable {model.api_key_env} is not set: put the API key there",)


def _limits(model: Model, table: Mapping[str, Any]) -> Mapping[str, Any]:
    limits = table.get("limits", {})
    found = limits.get(model.engine, {}) if isinstance(limits, Mapping) else {}
    return found if isinstance(found, Mapping) else {}


def _asked(found: ModelDiagnosis, table: Mapping[str, Any], *, is_called: bool) -> ModelDiagnosis:
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
        found = _with_probe(found, usages[-1], failed)
        return _with_context(found, backend) if found.is_ok else found
    finally:
        _close(backends)


def _with_probe(found: ModelDiagnosis, usage: Usage, failed: CallError | None) -> ModelDiagnosis:
    probe = CallProbe(
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
    if not probe.is_reached:
        where = f": check that {found.model.api_base} is running" if probe.failure == "server" and found.model.api_base else ""
        problems = (*problems, f"{probe.detail}{where}")
    elif probe.failure == "empty":
        notes = (*notes, f"wrote no text within {MAX_TOKENS} tokens: a reasoning model needs a larger max_tokens")
    elif probe.failure == "content_filter":
        notes = (*notes, "its content filter stopped the answer to a harmless question")
    if probe.is_estimated and probe.is_reached:
        notes = (*notes, "the server reports no token counts: costs are estimated from the length of the text")
    return replace(found, probe=probe, problems=problems, notes=notes)


def _with_context(found: ModelDiagnosis, backend: Backend) -> ModelDiagnosis:
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
