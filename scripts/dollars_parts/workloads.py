"""The bundled workflows with prompts of any length, and the calls that a profile of them makes, in its own order.

The models are simulated: their answers, and so the rows and the order of the calls, are those of the bundled simulated models.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dollars_parts.cache_rules import CHARS_PER_TOKEN
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from vinelm.backends import OfflineChatModel, simulated_catalog
from vinelm.backends.offline.simulated import SimulatedBackend
from vinelm.catalog import Catalog, Model, find_price
from vinelm.clock import VirtualClock
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.profiler.runner import continued_share
from vinelm.profiler.sampling.priced_sampler import PricedSampler
from vinelm.requests.protocols import CallContext
from vinelm.requests.workflow import Workflow
from vinelm.rows.observation import Observation, Usage
from vinelm.traces import ObservationStore
from vinelm.workflows.registry import load_workflow

HEAD = "[simulated call] "
"""Begins the last part of each prompt, which tells the provider what to answer."""
WORDS = "the order of a table is kept by the rule that each row has one key and no key is used for more than one row "


@dataclass(frozen=True, slots=True)
class Load:
    """A workflow, the share of its table that is profiled, and how many of its requests, taken evenly."""

    workflow: str
    coverage: float
    requests: int

    @property
    def title(self) -> str:
        """What a table calls it."""
        return f"{self.workflow} {100 * self.coverage:g} %"

    def load(self) -> Workflow:
        """The workflow with these requests."""
        return _workflow(self.workflow, self.requests)

    def models(self) -> Catalog:
        """The simulated models whose answers are given."""
        return simulated_catalog(self.load().simulated_preset or "paper")


@functools.cache
def _workflow(name: str, requests: int) -> Workflow:
    workflow = load_workflow(name)
    every = max(len(workflow.requests) // requests, 1)
    return replace(workflow, requests=workflow.requests[::every][:requests])


@dataclass(frozen=True, slots=True)
class Scaling:
    """The tokens of a prompt that all requests of a stage have in common, and those that all calls of a request have.

    ``is_common``: the former are the same for all stages, as one system prompt. ``marks`` are the parts that the application
    marks itself: 0 static, 1 request, 2 what its earlier stages said.
    """

    static: int
    request: int
    is_common: bool = False
    marks: tuple[int, ...] = ()

    def static_of(self, workflow: str, stage: str) -> str:
        """The name of the static text of a stage."""
        return workflow if self.is_common else f"{workflow}/{stage}"


def text_of(name: str, tokens: int) -> str:
    """A text of so many tokens that differs from any other's within its first characters."""
    start = hashlib.sha256(name.encode()).hexdigest()[:12] + " "
    return (start + WORDS * (tokens * CHARS_PER_TOKEN // len(WORDS) + 1))[: tokens * CHARS_PER_TOKEN]


@dataclass(frozen=True)
class ScaledModel:
    """The model of a stage: sends a prompt of the wanted length in place of the stage's own."""

    model: Any
    load: Load
    scaling: Scaling | None
    said: Mapping[str, Any]

    def invoke(self, messages: Sequence[BaseMessage]) -> Any:
        """Ask the model."""
        call: CallContext = self.model.binding.call
        assert call.request is not None
        told = json.dumps([self.load.workflow, call.stage, call.request.id, *call.prefix])
        if self.scaling is None:  # the workflow's own short prompts
            system, prompt = (str(message.content) for message in messages)
            texts = [system, prompt, HEAD + told]
        else:
            static = text_of(self.scaling.static_of(self.load.workflow, call.stage), self.scaling.static)
            request = text_of(call.request.id, self.scaling.request)
            texts = [static, request, f"{HEAD}{told}\n{json.dumps(self.said, sort_keys=True, default=str)}"]
        marks = self.scaling.marks if self.scaling else ()
        parts: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts]
        for at in marks:
            parts[at]["cache_control"] = {"type": "ephemeral"}
        return self.model.invoke([SystemMessage([parts[0]]), HumanMessage([*parts[1:]])])


def scaled(load: Load, scaling: Scaling | None) -> Workflow:
    """The workflow with prompts of these lengths; None: with its own prompts."""
    workflow = load.load()
    inputs = frozenset(workflow.graph_input(workflow.requests[0]))

    def stage_of(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def stage(state: Any, model: Any) -> Any:
            said = {key: value for key, value in state.items() if key not in inputs}
            return fn(state, model=ScaledModel(model, load, scaling, said))

        return stage

    def build(vine: Any) -> Any:
        return workflow.build(_Vine(vine, stage_of))

    return replace(workflow, build=build)


class _Vine:
    """The argument of ``build``, with other stages."""

    def __init__(self, vine: Any, stage_of: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._vine, self._stage_of = vine, stage_of

    def stage(self, name: str, fn: Callable[..., Any], **more: Any) -> Any:
        return self._vine.stage(name, self._stage_of(fn), **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vine, name)


def prompt_told(text: str) -> tuple[str, str, str, tuple[str, ...]]:
    """What the last part of a prompt tells: workflow, stage, request and models so far."""
    told = text.rpartition(HEAD)[2].partition("\n")[0]  # OpenAI's format has one text for all parts
    workflow, stage, request, *prefix = json.loads(told)
    return workflow, stage, request, tuple(prefix)


@dataclass
class Answers:
    """What the simulated models of a workflow answer, by (stage, request, models so far)."""

    load: Load
    seed: int = 0

    def __post_init__(self) -> None:
        workflow = self.load.load()
        assert workflow.writer is not None
        self.models = self.load.models()
        self._requests = {request.id: request for request in workflow.requests}
        self._source = SimulatedBackend(workflow.writer, seed=self.seed, catalog=self.models)

    def answer(self, stage: str, request: str, prefix: tuple[str, ...], prompt_chars: int) -> tuple[str, Usage]:
        """The text and its usage; the dollars are those of the simulated model and mean nothing here."""
        call = CallContext(stage=stage, prefix=prefix, clock=VirtualClock(), on_usage=_ignored, request=self._requests[request])
        return self._source.answer(self.models[prefix[-1]], call, prompt_chars)


def _ignored(usage: Usage) -> None:
    """Nobody asks."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a profile: its cell, the characters of what its earlier stages said, its answer's tokens and its seconds.

    ``first_s`` and ``seconds`` are those to the first and to the last token, of a prompt without static and request part.
    """

    stage: str
    request: str
    prefix: tuple[str, ...]
    said_chars: int
    tokens_out: int
    first_s: float
    seconds: float


@dataclass
class Recorder:
    """A backend whose answers are those of the simulated models, and that notes each call."""

    answers: Answers
    calls: list[Call] = field(default_factory=list)
    is_simulated = True
    is_virtual_time = True

    def chat_model(self, model: Model, call: CallContext) -> OfflineChatModel:
        """See :class:`vinelm.requests.protocols.Backend`."""
        return OfflineChatModel.bound(self, model, call)

    def answer(self, model: Model, call: CallContext, prompt_chars: int) -> tuple[str, Usage]:
        """See :class:`vinelm.backends.offline.chat_model.AnswerSource`."""
        assert call.request is not None
        text, usage = self.answers.answer(call.stage, call.request.id, call.prefix, prompt_chars)
        said = prompt_chars - 2 * CHARS_PER_TOKEN
        first_s = usage.ttft_s or 0.0
        made = Call(call.stage, call.request.id, call.prefix, said, usage.tokens_out or 0, first_s, usage.latency_s)
        self.calls.append(made)
        return text, replace(usage, cost_usd=model.price.cost_usd(usage.tokens_in or 0, usage.tokens_out or 0))


def recorded(load: Load, folder: Path) -> list[Call]:
    """The calls of the profile, in the order in which one worker makes them: units are admitted in this order."""
    recorder = Recorder(Answers(load))
    one_price = {"price": find_price("anthropic", "claude-sonnet-4-5").price}  # type: ignore[union-attr]
    catalog = Catalog(model.model_copy(update=one_price) for model in recorder.answers.models.models)
    run_profile(
        scaled(load, Scaling(1, 1)),
        catalog,
        {"simulated": recorder},
        folder / f"order-{load.workflow}-{load.coverage}.db",
        coverage=load.coverage,
    )
    return recorder.calls


def sampler_of(workflow: Workflow, catalog: Catalog) -> PricedSampler:
    """The default sampler, with its weights at the same for all models.

    Its own weights follow the dollars that were paid, and these are what is compared: other dollars would buy other rows.
    """
    ids = [request.id for request in workflow.requests]
    template = workflow.template.bind(tuple(catalog))
    return PricedSampler(template, catalog, ids, 0, alpha=0.0, continued_share=continued_share(workflow))


def run_profile(
    workflow: Workflow, catalog: Catalog, backends: Mapping[str, Any], store: Path, **settings: Any
) -> list[Observation]:
    """Profile into a new store; returns its rows."""
    sampler = sampler_of(workflow, catalog)
    with ObservationStore.create(store, store_identity(workflow, catalog, backends)) as opened:
        profile(workflow, catalog, backends, opened, ProfileSettings(sampler=sampler, budget_usd=1e6, **settings))
        return list(opened.observations())
