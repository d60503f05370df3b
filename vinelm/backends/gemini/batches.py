"""Gemini's batches, with their requests inline. Ours have our key as their display name.

Wire format: https://ai.google.dev/gemini-api/docs/batch-api
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from vinelm.backends.gemini.client import clients_of
from vinelm.backends.gemini.request import ModelSignatures
from vinelm.backends.gemini.response import GeminiStreamReader, failed, refused
from vinelm.backends.openai.batches import RESULTS, SKEW_S
from vinelm.backends.openai.client import named_key
from vinelm.backends.remote.batches import failure
from vinelm.backends.remote.client_pool import ClientPool, EventLoopClients
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.retry import AttemptFailed
from vinelm.backends.remote.transport import BatchApi, FoundBatch, TransportRequest
from vinelm.backends.turns import CallMemory
from vinelm.catalog import Model

if TYPE_CHECKING:
    from google.genai import Client

NAME = "key"
"""Under which a request's metadata has the name of its call."""
_ENDED = ("SUCCEEDED", "PARTIALLY_SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED")
_REST = {
    "FAILED": failure("server", "the provider could not run the batch"),
    "CANCELLED": failure("server", "the batch was cancelled before the call was made"),
    "EXPIRED": failure("timeout", "the batch expired before the call was made"),
}


class GeminiBatches(BatchApi):
    """Batches over the SDK. ``known`` keeps the signatures of tool calls, as for calls made at once."""

    most_calls, most_bytes = 10_000, 18 << 20  # the API takes 20 MB inline

    def __init__(self, known: CallMemory[bytes | None]) -> None:
        self._known = known
        self._clients: ClientPool[EventLoopClients[Client, Client]] = ClientPool(
            lambda model: clients_of(
                RESULTS, base_url=model.api_base, vertexai=False, api_key=named_key(model, "GEMINI_API_KEY")
            ),
            lambda model: (model.api_base, model.api_key_env),
        )

    def submit(self, model: Model, key: str, calls: Mapping[str, TransportRequest]) -> str:
        """Send the batch: one request."""
        requests: Any = [
            {"contents": request.body["contents"], "config": dict(request.body["config"]), "metadata": {NAME: name}}
            for name, request in calls.items()
        ]
        batches = self._clients.of(model).sync().batches
        return str(batches.create(model=model.model_id, src=requests, config={"display_name": key}).name)

    def find(self, model: Model, key: str, since_s: float, calls: int, known: frozenset[str]) -> FoundBatch:
        """Search by the display name."""
        for job in self._clients.of(model).sync().batches.list(config={"page_size": 100}):
            if job.display_name == key and job.name:
                return FoundBatch(job.name)
            if job.create_time is not None and job.create_time.timestamp() < since_s - SKEW_S:
                break
        return FoundBatch(None)

    def answers(self, model: Model, provider_id: str) -> Sequence[tuple[str, Mapping[str, Any]]] | None:
        """Read the responses of a batch that has ended."""
        job = self._clients.of(model).sync().batches.get(name=provider_id)
        state = str(getattr(job.state, "value", job.state)).removeprefix("JOB_STATE_")
        if state not in _ENDED:
            return None
        found: list[tuple[str, Mapping[str, Any]]] = [(self.REST, _REST[state])] if state in _REST else []
        for one in (job.dest.inlined_responses if job.dest is not None else None) or ():
            name = (one.metadata or {}).get(NAME)
            if name and one.response is not None:
                body = json.loads(one.response.model_dump_json(exclude_none=True, exclude={"sdk_http_response"}))
                found.append((name, {"body": body}))
            elif name and one.error is not None:
                found.append((name, _turned_down(one.error)))
        return found

    def parsed(self, model: Model, body: Mapping[str, Any]) -> Delta:
        """Parse a response as the SDK does."""
        from google.genai.types import GenerateContentResponse

        try:
            response = GenerateContentResponse.model_validate_json(json.dumps(body))
        except ValueError:
            response = None
        return GeminiStreamReader(ModelSignatures(self._known, model.model_id)).delta(response)

    def failed(self, error: Exception) -> AttemptFailed | None:
        """See :meth:`vinelm.backends.remote.transport.Transport.failed`."""
        return failed(error)

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()


# google.rpc.Code to the HTTP status that stands for it
_STATUS = {3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 400, 13: 500, 14: 503, 16: 401}


def _turned_down(error: Any) -> Mapping[str, Any]:
    status = _STATUS.get(error.code, error.code)
    told = SimpleNamespace(message=error.message, code=status, status=None, response=None, details=None)
    known = refused(told)
    return failure(known.kind, known.detail)
