"""Workflows. A workflow is an application's graph with its stages, a dataset of labelled requests, and a scorer."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from vinelm.errors import DatasetError, WorkflowError
from vinelm.signals import Agree, Signal, Signals
from vinelm.signals.kind import Kind, kind_of
from vinelm.template import Template

if TYPE_CHECKING:
    from vinelm.catalog import Catalog

_OF_GRAPH = cast("Template", None)
"""No template: it is read from the graph when the workflow is loaded, before it is used."""


@dataclass(frozen=True, slots=True)
class Request:
    """One labelled request.

    Args:
        id: Unique in its dataset.
        data: The request's row of the dataset, including labels.
    """

    id: str
    data: Mapping[str, Any]

    def digest(self) -> str:
        """Return a hash of the id and the row, which changes if the question or a label changes."""
        text = json.dumps([self.id, dict(self.data)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def has(self, keys: Iterable[str]) -> bool:
        """Return whether the request's row has a value for each of these keys; None, NaN and blank text do not count as
        values.
        """
        return not any(_is_empty(self.data.get(key)) for key in keys)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or (isinstance(value, float) and math.isnan(value))


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """A LangGraph application with its dataset and scorer: what VineLM profiles.

    Args:
        name: The name in stores and reports.
        template: The stages, branches and loops, and the models that they may use. If left out, the template is read
            from the graph.
        build: ``build(vine)`` returns the LangGraph graph, compiled or not, with its LLM nodes wrapped by ``vine.stage``. Or a
            function of the inputs, sync or async, that calls ``vine.chat_model`` and returns the state as a dict.
        requests: The requests: at least one, with unique ids.
        score: ``score(request, state)`` returns whether the answer in the final state is correct, or a score in [0, 1]. With
            scores, accuracies are mean scores, and the stop rule cannot be ``"oracle"``. It must not spend money or depend on
            time. For requests without labels: ``vinelm.as_today`` or :func:`~vinelm.judging.llm_judge`.
        inputs: ``inputs(request)`` returns the graph's input; None takes the row without ``labels``.
        labels: Keys of a row that the graph must not see.
        context: ``context(request)`` returns LangGraph's ``context=`` for the request's runs while it is profiled or
            verified: an instance of the graph's ``context_schema``, or a dict.
        configurable: ``configurable(request)`` returns what these runs find in ``config["configurable"]``, ``thread_id``
            included. Checkpoints of different runs never mix, whatever the ``thread_id``.
        writer: Writes answers for simulated models; None allows real models only.
        simulated_preset: The simulated models used if no catalog is named; None takes the default preset.
        models: The catalog used if none is named, instead of simulated models: models whose answers are recorded.
        answer_interrupt: ``answer_interrupt(request, value)`` returns a person's answer to LangGraph's ``interrupt(value)``
            while profiling; the same arguments must give the same answer. None refuses such nodes.
        replay: Run a request from its start for each path, with recorded answers for earlier calls, even if checkpoints could
            be forked. Needed if one node calls its model repeatedly.
        unrepeatable: Names of nodes and tools that must not run again when a request is replayed.
        signal: What is known about a call's answer without the label, for planning; see
            :class:`~vinelm.signals.Signals`.
        signal_edges: Edges of the bins for a number returned by ``signal``.
        agree: ``agree(a, b)`` returns whether two answers are equal; see :class:`~vinelm.signals.Signals`.
        answer: Keys of the state that make an answer. Their values are kept in the store.
        kind: The type of a request, known before its first call: a function ``kind(inputs)`` that returns a label, or the name
            of the input field or dataset column that holds it. Plans tell the 16 most frequent types apart; others count as
            ``"other"``. None means that all requests are of one type.
        resources: Digests, by label, of other things that determine an answer (databases, prompt files). Part of the
            fingerprint.

    Raises:
        DatasetError: There is no request, a request id repeats, or a label is NaN.
    """

    name: str
    template: Template = _OF_GRAPH
    build: Callable[[Any], Any]
    requests: Sequence[Request]
    score: Callable[[Request, Mapping[str, Any]], bool | float]
    inputs: Callable[[Request], Mapping[str, Any]] | None = None
    labels: tuple[str, ...] = ()
    writer: AnswerWriter | None = None
    simulated_preset: str | None = None
    models: Catalog | None = None
    answer_interrupt: Callable[[Request, Any], Any] | None = None
    resources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    replay: bool = False
    unrepeatable: tuple[str, ...] = ()
    signal: Signal | None = None
    signal_edges: tuple[float, ...] = ()
    agree: Agree | None = None
    answer: tuple[str, ...] = ()
    context: Callable[[Request], Any] | None = None
    configurable: Callable[[Request], Mapping[str, Any]] | None = None
    kind: Kind | None = None

    def __post_init__(self) -> None:
        self.signals  # noqa: B018 - checked here, so that a mistake is reported where it is made
        if not self.requests:
            raise DatasetError(f"workflow {self.name!r} has no requests: give it a dataset with at least one row")
        seen: set[str] = set()
        for request in self.requests:
            if request.id in seen:
                raise DatasetError(f"workflow {self.name!r}: the request id {request.id!r} repeats: ids must be unique")
            seen.add(request.id)
        # A judge's label is not one of ``labels``: it may be a column that the graph sees, too.
        judged = getattr(self.score, "label", None)
        for key in (*self.labels, *([judged] if isinstance(judged, str) else [])):
            for request in self.requests:
                if _is_nan(request.data.get(key)):
                    raise DatasetError(
                        f"workflow {self.name!r}: request {request.id!r} has NaN as its label {key!r}, which no answer equals: "
                        "leave the row out, or give it a label (None where it has none)"
                    )

    @property
    def has_template(self) -> bool:
        """Whether the template was given or has been read from the graph, which happens when the workflow is loaded."""
        return self.template is not _OF_GRAPH

    @property
    def signals(self) -> Signals:
        """The declared signals of the workflow's requests."""
        return Signals.of(self.signal, self.signal_edges, self.agree, self.answer)

    def graph_input(self, request: Request) -> dict[str, Any]:
        """Return the graph's input, which never contains labels."""
        if self.inputs is not None:
            return dict(self.inputs(request))
        return {key: value for key, value in request.data.items() if key not in self.labels}

    def kind_of(self, request: Request) -> str | None:
        """Return the type of a request; None if the workflow declares no types.

        Raises:
            WorkflowError: ``kind`` raised, or returned something that is not a label. The message names the request.
        """
        if self.kind is None:
            return None
        try:
            return kind_of(self.kind, self.graph_input(request), request.data)
        except WorkflowError as error:
            raise WorkflowError(f"request {request.id!r}: {error}") from error

    @property
    def dataset_digest(self) -> str:
        """A hash of all rows of the dataset, in their order."""
        return hashlib.sha256("".join(request.digest() for request in self.requests).encode()).hexdigest()


def _is_nan(value: Any) -> bool:
    """Return whether a value is NaN, NaT or NA, of any library."""
    try:
        return bool(value != value)  # noqa: PLR0124 - that is the test
    except (TypeError, ValueError):  # an array, or pandas' NA, which is a missing value
        return type(value).__name__ == "NAType"


class AnswerWriter(Protocol):
    """Writes the correct and wrong answers of simulated models. The workflow's scorer scores them like other answers."""

    kinds: Sequence[str]
    """The kinds of error that :meth:`wrong` can make."""

    def skills(self, request: Request) -> Mapping[str, float]:
        """Return how much of each skill the request demands, in [0, 1], keyed by the skill's name."""

    def right(self, request: Request, rng: random.Random) -> str:
        """Return a correct answer, in the form that a stage expects."""

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """Return a wrong answer with this kind of error, or with another kind if that kind does not apply."""


@runtime_checkable
class ShowsErrors(Protocol):
    """An :class:`AnswerWriter` that declares which kinds of wrong answers the next simulated call recognizes as wrong.

    ``visible_kinds`` are these kinds. For writers without this declaration, they are the errors that show when a query is
    executed: an error message or an empty result.
    """

    visible_kinds: frozenset[str]
    """Kinds of error after which the next invocation knows that something was wrong."""


class StageWriter(AnswerWriter, Protocol):
    """Writes the simulated answers of one stage."""

    ease: float
    """How much easier the stage is than writing a query: added to every simulated model's margin."""


@runtime_checkable
class StagedWriter(Protocol):
    """An :class:`AnswerWriter` for workflows whose stages write different kinds of text; its own methods ``right`` and
    ``wrong`` write the final answer.
    """

    def at(self, stage: str) -> StageWriter:
        """Return the writer of a stage's answers."""
