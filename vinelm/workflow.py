"""A workflow: a graph with configurable stages, a dataset of requests, a scorer."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from vinelm.errors import DatasetError
from vinelm.template import Template


@dataclass(frozen=True, slots=True)
class Request:
    """One labelled request: an id of its own, and the dataset row that it came from."""

    id: str
    data: Mapping[str, Any]

    def digest(self) -> str:
        """Hash of the row: a changed question or label is another request."""
        text = json.dumps([self.id, dict(self.data)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """What VineLM profiles and serves.

    - ``build(vine)`` returns the LangGraph graph, compiled or not; its LLM nodes are wrapped with ``vine.stage``.
    - ``requests``: the labelled requests.
    - ``score(request, state)``: whether the answer in the final state is right. Must not spend money or depend on time.
    - ``inputs(request)``: the graph's input; by default the row without labels (``labels`` names the keys left out).
    - ``writer``: how a simulated model writes answers to these requests; without one only real models can run.
    - ``resources``: what else decides an answer (databases, prompt files): folded into the fingerprint, as label to digest.
    """

    name: str
    template: Template
    build: Callable[[Any], Any]
    requests: Sequence[Request]
    score: Callable[[Request, Mapping[str, Any]], bool]
    inputs: Callable[[Request], Mapping[str, Any]] | None = None
    labels: tuple[str, ...] = ()
    writer: AnswerWriter | None = None
    resources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if not self.requests:
            raise DatasetError(f"workflow {self.name!r} has no requests: give it a dataset with at least one row")
        seen: set[str] = set()
        for request in self.requests:
            if request.id in seen:
                raise DatasetError(f"workflow {self.name!r}: the request id {request.id!r} repeats: ids must be unique")
            seen.add(request.id)

    def graph_input(self, request: Request) -> dict[str, Any]:
        """What the graph is invoked with: never the labels."""
        if self.inputs is not None:
            return dict(self.inputs(request))
        return {key: value for key, value in request.data.items() if key not in self.labels}

    @property
    def dataset_digest(self) -> str:
        """Hash of all rows, in order."""
        return hashlib.sha256("".join(request.digest() for request in self.requests).encode()).hexdigest()


class AnswerWriter(Protocol):
    """Writes right and wrong answers for a simulated model. Whether one is right is for the workflow's scorer to say."""

    kinds: Sequence[str]
    """Kinds of error that :meth:`wrong` can make."""

    def skills(self, request: Request) -> Mapping[str, float]:
        """How much of each skill the request demands, each in [0, 1]."""

    def right(self, request: Request, rng: random.Random) -> str:
        """A right answer, in the form that a stage expects."""

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """A wrong answer of that kind; another kind where this one does not apply."""
