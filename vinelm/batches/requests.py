"""Removes duplicates from the requests of a batch, and orders the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from vinelm.adapters.langgraph.build import keys_of_state
from vinelm.batches.first_prompt import first_prompt, of_inputs
from vinelm.batches.order import depth_first
from vinelm.catalog import Catalog
from vinelm.errors import DatasetError, WorkflowError, is_of_code
from vinelm.prompts.shape import shape_of
from vinelm.requests.workflow import Request, Workflow
from vinelm.signals.declaration import digest, digest_of_text

SAMPLE = 1000
"""How many requests' inputs are compared if the first prompt is unknown."""
_KEY = b"texts that are at hand and are not kept"


@dataclass(frozen=True, slots=True)
class DatasetRequests:
    """The requests of a dataset without duplicates.

    Args:
        keys: For each request, in the order of the data set, a digest of the graph's inputs.
        first: The first request with each key.
        order: The keys in the order of serving, in which prompts with a common beginning are neighbours.
        groups: For each key in this order, the number of its group; prompts of a group have a common beginning.
        shared: Of all tokens in the prompts of first calls, the fraction that repeats the beginning of the preceding request's
            prompt, in [0, 1]. None if these prompts are unknown.
        note: Why these prompts are unknown; empty if they are known.
    """

    keys: tuple[str, ...]
    first: Mapping[str, Request]
    order: tuple[str, ...]
    groups: tuple[int, ...]
    shared: float | None
    note: str

    @property
    def equal(self) -> int:
        """The number of requests that equal an earlier request."""
        return len(self.keys) - len(self.first)


def requests_of(workflow: Workflow, catalog: Catalog, app: Any) -> DatasetRequests:
    """Return the requests of a workflow, without duplicates and ordered by the prompts of their first calls. Spends nothing.

    Args:
        workflow: The workflow.
        catalog: The models of its stages.
        app: The compiled application. Requests that differ only in columns that are not keys of its state count as equal.

    Raises:
        DatasetError: The workflow's ``inputs`` function fails on a request, which the message names.
    """
    first: dict[str, Request] = {}
    state = keys_of_state(app)
    keys = tuple(_key(workflow, request, state) for request in workflow.requests)
    for key, request in zip(keys, workflow.requests, strict=True):
        first.setdefault(key, request)
    found, note = first_prompt(workflow, catalog, list(first.values()))
    prompt = found or of_inputs([_given(workflow, request) for request in list(first.values())[:SAMPLE]])
    order = depth_first(shape_of(prompt.of(_given(workflow, request)), _KEY) for request in first.values())
    ordered = [*first]
    return DatasetRequests(
        keys,
        first,
        tuple(ordered[place] for place in order.places),
        tuple(order.groups),
        order.shared / max(order.tokens, 1) if found is not None else None,
        note,
    )


def _key(workflow: Workflow, request: Request, state: Collection[str] | None) -> str:
    """Return a digest of everything that the request's run depends on; equal digests mark equal requests.

    Input keys that are not in ``state``, the keys of the graph's state, are ignored; None ignores no key. If an input has no
    JSON form, the digest is that of the request's id.
    """
    given = _given(workflow, request)
    told: list[Any] = [{key: value for key, value in given.items() if state is None or key in state}]
    told += [workflow.kind_of(request)] if workflow.kind is not None else []
    told += [request.data] if workflow.context is not None or workflow.configurable is not None else []
    try:
        return digest(told)
    except WorkflowError:  # it cannot be shown to equal another request
        return digest_of_text(f"request {request.id}")


def _given(workflow: Workflow, request: Request) -> Mapping[str, Any]:
    try:
        return workflow.graph_input(request)
    except BaseException as error:
        if not is_of_code(error):
            raise
        raise DatasetError(
            f"request {request.id!r}: inputs(request) raised {type(error).__name__}: {error}: mend the row, or the function"
        ) from error
