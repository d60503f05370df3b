"""A workflow: a graph with configurable stages, a dataset of requests, a scorer."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vinelm.dataset import json_objects
from vinelm.errors import DatasetError
from vinelm.protocols import AnswerWriter
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


def read_jsonl(path: str | Path, *, required: Sequence[str] = (), id_key: str = "id") -> list[Request]:
    """Requests from JSON lines, plain or gzip. :class:`DatasetError` names file and line at fault.

    Each line is an object with the keys ``required``; ``id_key`` names the one that identifies it (its value is made a string;
    a file without it gets line numbers as ids).
    """
    requests: list[Request] = []
    first_line: dict[str, int] = {}
    for number, row in _rows(Path(path)):
        for key in required:
            if key not in row:
                raise DatasetError(f"{path}:{number}: the key {key!r} is missing: every line needs {', '.join(required)}")
        request_id = str(row.get(id_key, number))
        if not request_id:
            raise DatasetError(f"{path}:{number}: {id_key!r} is empty: give every line an id of its own")
        if request_id in first_line:
            raise DatasetError(
                f"{path}:{number}: the id {request_id!r} repeats line {first_line[request_id]}: ids must be unique"
            )
        first_line[request_id] = number
        requests.append(Request(request_id, row))
    if not requests:
        raise DatasetError(f"{path}: the dataset is empty: it needs one JSON object per line")
    return requests


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            yield from json_objects(lines, path)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise DatasetError(f"{path}: cannot read the dataset: {error}") from error


def split_requests(requests: Sequence[Request], held_out: float, seed: int) -> tuple[list[Request], list[Request]]:
    """(training, held-out) requests, both in dataset order. Which side a request is on depends on its id and the seed alone,
    so that a growing dataset never moves a request across.
    """

    def share(request: Request) -> float:
        digest = hashlib.sha256(f"{seed}:{request.id}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64

    training = [request for request in requests if share(request) >= held_out]
    return training, [request for request in requests if share(request) < held_out]
