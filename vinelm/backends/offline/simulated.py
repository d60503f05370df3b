"""Simulated models, which write right or wrong answers by a known behaviour. No key, no network, no money."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct

from langchain_core.language_models import BaseChatModel

from vinelm.backends.base import Counts, estimate_tokens, model_options
from vinelm.backends.offline.chat_model import OfflineChatModel, request_of, said_chars
from vinelm.backends.offline.presets import (
    BEHAVIOURS,
    FEEDBACK_GAIN,
    HARDNESS_SD,
    REPEAT_KIND_SHARE,
    VISIBLE_KINDS,
    Behaviour,
    behaviour_of,
    simulated_catalog,
)
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Catalog, Model
from vinelm.errors import ConfigError, DatasetError, FailureKind
from vinelm.requests.protocols import CallContext
from vinelm.requests.workflow import AnswerWriter, Request, ShowsErrors, StagedWriter
from vinelm.rows.observation import Usage

PREFILL_TOKENS_PER_S = 6000.0
"""How fast prompt tokens are read, on top of a model's own time to first token."""
REASONING_SIGMA = 0.4
"""Spread of the log of the number of reasoning tokens."""
FAILURES: tuple[FailureKind, ...] = ("rate_limit", "server", "timeout")
"""How calls fail if a failure rate is set. None of these failures is billed."""
OPTIONS = ("failure_rate", "cached_share")
"""Options of a simulated model; both are fractions."""

DEFAULT_ANSWER_KEY = "answer"
_WORDS = Struct(">16H")
_SUM_MEAN = 16 * 65535 / 2
_SUM_SD = math.sqrt(16 * (65536**2 - 1) / 12)
_SEPARATOR = "\x1f"


# -- draws: the same on every machine, in any order, thread and process ------------------------------------------------

# Each is a function of a seed and the names of its subject, by SHA-256 and basic IEEE arithmetic: no shared generator,
# no ``hash()``, and no ``libm``, whose last bit differs between platforms.


def digest(*names: object) -> bytes:
    """Return a 32-byte hash of the names in order."""
    return hashlib.sha256(_SEPARATOR.join(map(str, names)).encode("utf-8", "surrogatepass")).digest()


def normal(*names: object) -> float:
    """Return a number from an approximately standard normal distribution; equal names give the same number.

    It is the sum of 16 uniform random integers, shifted and scaled to mean 0 and standard deviation 1. Its absolute value is
    at most 6.93.
    """
    total: int = sum(_WORDS.unpack(digest(*names)))
    return (total - _SUM_MEAN) / _SUM_SD


def uniform(*names: object) -> float:
    """Return a number drawn uniformly from [0, 1); equal names give the same number."""
    return (int.from_bytes(digest(*names)[:8], "big") >> 11) / 2**53


def exp(x: float) -> float:
    """Return e^x within 1e-4 for x in [-4, 4], using multiplications only."""
    h = x / 64.0
    power = 1.0 + h * (1.0 + h * (0.5 + h / 6.0))
    for _ in range(6):
        power *= power
    return power


def generator(*names: object) -> random.Random:
    """Return a new random generator seeded with the names."""
    return random.Random(int.from_bytes(digest(*names)[:16], "big"))


_lasting = lru_cache(maxsize=65_536)(normal)
"""The function :func:`normal` with a cache, for draws that all calls about one question share."""


# -- the backend -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Task:
    """What a simulated model has to do in one execution of a step.

    Attributes:
        writer: Writes right and wrong answers.
        request: The request to answer.
        name: The request's id, with the stage if each stage has a separate task. It seeds all random effects except
            how hard the question is.
        ease: Is added to the margin that decides whether the answer is right: an easier task has a larger value.
    """

    writer: AnswerWriter
    request: Request
    name: str
    ease: float = 0.0


class SimulatedBackend:
    """Simulates models' answers. An answer depends only on the seed, the request, and the models that the request has called so
    far.

    So answers are the same on every machine and in any order of calls. Of the prompt only the length matters, for token counts
    and latency. The object ``writer`` writes the text of an answer, and the workflow scores the text. After an answer with a
    visible error, the next answer is slightly more likely to be right.

    With a :class:`~vinelm.requests.workflow.StagedWriter` each stage has a separate task: a model may be weak at one stage and
    strong at another, but a hard request is hard at all stages.

    A model's option ``cached_share`` simulates a prompt cache: this fraction of a prompt is cached if the request's previous
    call used the same model and engine. The cached part takes no prefill time and is billed at the price for cached tokens.

    Args:
        writer: Writes right and wrong answers for a request.
        seed: Determines all answers, latencies and failures.
        real_time: Whether calls really take their simulated latency, on a wall clock.
        catalog: The models that requests may have called before; by default the simulated models of the VineLM paper. Errors
            of models that are not simulated have no effect on the next answer.
        failure_rate: Fraction of calls that fail with :class:`~vinelm.errors.CallError`, in [0, 1]; a model's own option
            ``failure_rate`` overrides it.
    """

    is_simulated = True

    def __init__(
        self,
        writer: AnswerWriter,
        *,
        seed: int = 0,
        real_time: bool = False,
        catalog: Catalog | None = None,
        failure_rate: float = 0.0,
    ) -> None:
        self.is_virtual_time = not real_time
        self._writer = writer
        self._stages = writer if isinstance(writer, StagedWriter) else None
        self._visible = writer.visible_kinds if isinstance(writer, ShowsErrors) else VISIBLE_KINDS
        self._seed = seed
        self._failure_rate = _checked_rate(failure_rate, "failure_rate")
        self._catalog = simulated_catalog() if catalog is None else catalog

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """Return a chat model for one execution of a step. Raise :class:`ConfigError` for an unknown model id or a call without
        a request.
        """
        if model.model_id not in BEHAVIOURS or call.request is None:
            behaviour_of(model)
            request_of(call, "simulated")
        return OfflineChatModel.bound(self, model, call)

    def answer(self, model: Model, call: CallContext, prompt_chars: int) -> tuple[str, Usage]:
        """Return the answer's text and its usage, without waiting for the latency or reporting the usage. ``usage.failure`` is
        set if the call fails.
        """
        behaviour = behaviour_of(model)
        request = request_of(call, "simulated")
        names = (self._seed, request.id, *call.prefix)
        failure = self._failure(model, names)
        text = "" if failure else self._text(self._task(request, call.stage), behaviour, model.model_id, call.prefix)
        if failure is not None:
            return text, _failed_usage(behaviour, model, names, failure)
        tokens_in = estimate_tokens(prompt_chars)
        said = said_chars(text) if text.startswith("{") else len(text)
        counts = Counts(tokens_in, estimate_tokens(said), self._cached(model, call.prefix[:-1], tokens_in))
        return text, _usage(behaviour, model, names, counts)

    def _cached(self, model: Model, before: Sequence[str], tokens_in: int) -> int | None:
        """Return how many tokens of a prompt are in the prompt cache, which only the request's previous call can have filled.

        Returns None if the model has no prompt cache, and 0 if that call used another model or engine. ``before`` has the
        models of the request's earlier calls, ``tokens_in`` is the prompt's length in tokens.
        """
        share = model_options(model, *OPTIONS).get("cached_share")
        if share is None:
            return None
        last = self._catalog.get(before[-1]) if before else None
        is_warm = last is not None and last.prompt_cache == model.prompt_cache
        return int(_checked_rate(share, f"model {model.name!r}: cached_share") * tokens_in) if is_warm else 0

    def _task(self, request: Request, stage: str) -> _Task:
        if self._stages is not None:
            writer = self._stages.at(stage)
            return _Task(writer, request, f"{request.id}/{stage}", writer.ease)
        return _Task(self._writer, request, request.id)

    def _text(self, task: _Task, behaviour: Behaviour, model_id: str, prefix: Sequence[str]) -> str:
        kind = self._error(task, behaviour, model_id, prefix)
        rng = generator(self._seed, task.name, *prefix, "text")
        return task.writer.right(task.request, rng) if kind is None else task.writer.wrong(task.request, kind, rng)

    def _error(self, task: _Task, behaviour: Behaviour, model_id: str, prefix: Sequence[str]) -> str | None:
        """Return the type of error in the answer of the last model in ``prefix``; None if the answer is right.

        ``prefix`` has the models that the request has called so far, the answering model last.
        """
        margin = self._margin(task, behaviour, model_id) + behaviour.fresh_sd * normal(self._seed, task.name, *prefix, "fresh")
        if margin > 0.0 or (margin > -FEEDBACK_GAIN and self._saw_error(task, prefix[:-1])):
            return None
        return self._kind(task, behaviour, model_id, prefix)

    def _margin(self, task: _Task, behaviour: Behaviour, model_id: str) -> float:
        """Return a model's margin on a task, a number that decides whether its answer is right, without the random effect of a
        single call.

        The answer is right if the margin, with that random effect added, is above 0.
        """
        seed, asked = self._seed, task.name
        mean = math.fsum(behaviour.weakness.values()) / len(behaviour.weakness)
        skills = task.writer.skills(task.request)
        demanded = math.fsum(behaviour.weakness.get(skill, mean) * share for skill, share in skills.items())
        return (
            behaviour.ability
            - demanded
            + task.ease
            + HARDNESS_SD * _lasting(seed, task.request.id, "question")
            + behaviour.family_sd * _lasting(seed, asked, behaviour.family, "family")
            + behaviour.persistent_sd * _lasting(seed, asked, model_id, "persistent")
        )

    def _saw_error(self, task: _Task, before: Sequence[str]) -> bool:
        """Return whether the answer of the last model in ``before`` has an error that becomes visible when the answer is
        executed.

        False if stages have different tasks, because a model learns nothing from an error at another task.
        """
        model = self._catalog.get(before[-1]) if before else None
        if model is None or model.provider != "simulated" or self._stages is not None:
            return False
        return self._error(task, behaviour_of(model), model.model_id, before) in self._visible

    def _kind(self, task: _Task, behaviour: Behaviour, model_id: str, prefix: Sequence[str]) -> str:
        is_usual = uniform(self._seed, task.name, *prefix, "habit") < REPEAT_KIND_SHARE
        names = (model_id,) if is_usual else tuple(prefix)
        point = uniform(self._seed, task.name, *names, "kind")
        weights = [behaviour.kinds.get(kind, 1.0) for kind in task.writer.kinds]
        point *= math.fsum(weights)  # sum() of floats rounds differently before Python 3.12
        for kind, weight in zip(task.writer.kinds, weights, strict=True):
            point -= weight
            if point < 0.0:
                return kind
        return task.writer.kinds[-1]

    def _failure(self, model: Model, names: tuple[object, ...]) -> FailureKind | None:
        options = model_options(model, *OPTIONS)
        rate = self._failure_rate
        if "failure_rate" in options:
            rate = _checked_rate(options["failure_rate"], f"model {model.name!r}: failure_rate")
        if rate == 0.0 or uniform(*names, "failure") >= rate:
            return None
        return FAILURES[digest(*names, "failure kind")[0] % len(FAILURES)]


def _usage(behaviour: Behaviour, model: Model, names: Sequence[object], counts: Counts) -> Usage:
    """Return the usage of a successful call. ``counts`` excludes the reasoning tokens, which are drawn here.

    ``names`` seed the random draws.
    """
    reasoning = int(behaviour.reasoning_tokens * exp(REASONING_SIGMA * normal(*names, "reasoning")))
    cached = counts.cached or 0
    ttft_s = _ttft_s(behaviour, names, counts.tokens_in - cached)
    pace = exp(behaviour.latency_sigma * normal(*names, "pace"))
    tokens_out = reasoning + counts.tokens_out
    return Usage(
        model=model.name,
        cost_usd=model.price.cost_usd(counts.tokens_in, tokens_out, cached),
        latency_s=round(ttft_s + pace * tokens_out / behaviour.tokens_per_s, 6),
        tokens_in=counts.tokens_in,
        tokens_out=tokens_out,
        tokens_cached=counts.cached,
        tokens_reasoning=reasoning,
        tokens_estimated=True,
        ttft_s=round(ttft_s, 6),
        finish_reason="stop",
        price_id=model.price_id,
    )


def _failed_usage(behaviour: Behaviour, model: Model, names: Sequence[object], failure: FailureKind) -> Usage:
    """Return the usage of a failed call: a timeout takes the model's ``timeout_s``, another failure the time to first token.

    ``names`` seed the random draws.
    """
    latency_s = model.timeout_s if failure == "timeout" else _ttft_s(behaviour, names, 0)
    return Usage(model=model.name, cost_usd=0.0, latency_s=round(latency_s, 6), price_id=model.price_id, failure=failure)


def _ttft_s(behaviour: Behaviour, names: Sequence[object], tokens_in: int) -> float:
    base_s = behaviour.ttft_s + tokens_in / PREFILL_TOKENS_PER_S
    return base_s * exp(behaviour.latency_sigma * normal(*names, "ttft"))


def _checked_rate(rate: object, what: str) -> float:
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0.0 <= rate <= 1.0:
        raise ConfigError(f"{what} is {rate!r}: it must be a number from 0 to 1")
    return float(rate)


# -- the answers of a workflow without a writer -------------------------------------------------------------------------


class TextWriter:
    """Writes the right answer from the dataset's label, and a different text as a wrong answer.

    Requests whose row of the dataset has more characters are harder. ``answer_key`` is the column with the label, ``kinds`` are
    the types of wrong answer.
    """

    kinds: Sequence[str] = ("near_miss", "off_topic")

    def __init__(self, answer_key: str = DEFAULT_ANSWER_KEY) -> None:
        self._key = answer_key

    def skills(self, request: Request) -> Mapping[str, float]:
        """Return the demanded skill ``length``: the number of characters of the request's row divided by 1000, at most 1."""
        chars = sum(len(value) for key, value in request.data.items() if isinstance(value, str) and key != self._key)
        return {"length": min(1.0, chars / 1000.0)}

    def right(self, request: Request, rng: random.Random) -> str:
        """Return the right answer: the label of the request, as text. Raise :class:`DatasetError` if the row has no label."""
        if self._key not in request.data:
            raise DatasetError(f"request {request.id!r}: the row has no {self._key!r}: name its label in answer_key")
        return str(request.data[self._key])

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """Return a wrong answer: for the kind "near_miss" a number near the label, or the label's letters shuffled; otherwise
        an unrelated text.
        """
        label = self.right(request, rng)
        if kind == "near_miss":
            near = _near(label, rng)
            if near.strip().lower() != label.strip().lower():
                return near
        return "I do not know" if label.strip().lower() != "i do not know" else "no answer"


def _near(label: str, rng: random.Random) -> str:
    try:
        return str(int(label) + rng.choice((-10, -1, 1, 2, 10)))
    except ValueError:
        pass
    try:
        return str(round(float(label) * rng.choice((0.5, 0.9, 1.1, 2.0)) + 1.0, 6))
    except ValueError:
        letters = list(label)
        rng.shuffle(letters)
        return "".join(letters)


def _writer_for(settings: ProviderSettings) -> AnswerWriter:
    """Return the workflow's own answer writer, or else a :class:`TextWriter` that writes each request's label.

    Raise :class:`ConfigError` if no workflow is given, or if it has no writer and its rows lack the column of the right answer.
    """
    workflow = settings.workflow
    if workflow is None:
        raise ConfigError("simulated models answer from a workflow's rows: give create_backends a workflow")
    if workflow.writer is not None:
        if "answer_key" in settings.table:
            raise ConfigError(f"[backend.simulated]: answer_key has no effect: workflow {workflow.name!r} has its own writer")
        return workflow.writer
    columns = workflow.requests[0].data
    only = workflow.labels[0] if len(workflow.labels) == 1 else DEFAULT_ANSWER_KEY
    key = settings.setting("answer_key", str, only)
    if key not in columns:
        raise ConfigError(
            f"workflow {workflow.name!r}: simulated models need the right answer and the rows have no {key!r}: "
            f"set answer_key under [backend.simulated] to one of {', '.join(columns)}, or give the workflow a writer"
        )
    return TextWriter(key)


def create(settings: ProviderSettings) -> SimulatedBackend:
    """Create the backend of the catalog's simulated models.

    Settings: ``seed``, ``real_time``, ``failure_rate``, and ``answer_key`` (the dataset's column with the right answer, for
        workflows without a writer).

    Raises:
        ConfigError: A setting is invalid.
    """
    settings.refuse_unknown("seed", "real_time", "failure_rate", "answer_key")
    for model in settings.models:
        behaviour_of(model)
        for name, rate in model_options(model, *OPTIONS).items():
            _checked_rate(rate, f"model {model.name!r}: {name}")
    return SimulatedBackend(
        _writer_for(settings),
        seed=settings.setting("seed", int, settings.seed),
        real_time=settings.setting("real_time", bool, settings.real_time),
        catalog=settings.catalog,
        failure_rate=settings.setting("failure_rate", float, 0.0),
    )
