"""Anthropic's batches of messages. They carry no metadata: ours are known by the names of their calls.

Wire format: https://platform.claude.com/docs/en/build-with-claude/batch-processing
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from vinelm.backends.anthropic.client import HOME, KEY_ENV, api_version, clients_of
from vinelm.backends.anthropic.messages import Thinking
from vinelm.backends.anthropic.response import MessageReader, failed, refused
from vinelm.backends.http.answer_body import BodyLimits
from vinelm.backends.http.deadline import NO_LIMIT_S
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
    from anthropic import Anthropic, AsyncAnthropic

_ENDED: Mapping[str, Mapping[str, Any]] = {
    "expired": failure("timeout", "the batch expired before the call was made"),
    "canceled": failure("server", "the batch was cancelled before the call was made"),
}
_OF_THE_SERVER = ("api_error", "overloaded_error", "timeout_error")


class AnthropicBatches(BatchApi):
    """Batches over the SDK. ``known`` keeps the thinking that belongs to tool calls, as for calls made at once."""

    halves_cache = True
    most_calls, most_bytes = 100_000, 240 << 20

    def __init__(self, known: CallMemory[Thinking], limits: BodyLimits = RESULTS) -> None:
        self._known = known
        self._clients: ClientPool[EventLoopClients[Anthropic, AsyncAnthropic]] = ClientPool(
            lambda model: clients_of(model.api_base or HOME, named_key(model, KEY_ENV), api_version(model), limits),
            lambda model: (model.api_base, model.api_key_env, api_version(model)),
        )

    def submit(self, model: Model, key: str, calls: Mapping[str, TransportRequest]) -> str:
        """Send the batch: one request."""
        bodies = {name: dict(request.body) for name, request in calls.items()}
        betas: dict[str, None] = {}
        for body in bodies.values():
            asked = body.pop("betas", None) or ()
            betas |= dict.fromkeys([asked] if isinstance(asked, str) else asked)
        requests: Any = [{"custom_id": name, "params": {"model": model.model_id, **body}} for name, body in bodies.items()]
        headers = {"anthropic-beta": ",".join(betas)} if betas else {}
        messages = self._clients.of(model).sync().messages
        return messages.batches.create(requests=requests, extra_headers=headers, timeout=NO_LIMIT_S).id

    def find(self, model: Model, key: str, since_s: float, calls: int, known: frozenset[str]) -> FoundBatch:
        """Look into each batch that may be ours. Which calls one has that is under way, nobody says: it has to end first."""
        batches, is_certain = self._clients.of(model).sync().messages.batches, True
        for batch in batches.list(limit=100):
            if batch.created_at.timestamp() < since_s - SKEW_S:
                break
            counts = batch.request_counts
            total = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
            if batch.id in known or total != calls:
                continue
            if batch.processing_status != "ended":
                is_certain = False
            elif any(item.custom_id.startswith(f"{key}-") for item in islice(batches.results(batch.id), 1)):  # all, or none
                return FoundBatch(batch.id)
        return FoundBatch(None, is_certain)

    def answers(self, model: Model, provider_id: str) -> Sequence[tuple[str, Mapping[str, Any]]] | None:
        """Read the results of a batch that has ended."""
        batches = self._clients.of(model).sync().messages.batches
        if batches.retrieve(provider_id).processing_status != "ended":
            return None
        with batches.with_streaming_response.results(provider_id, timeout=NO_LIMIT_S) as response:
            return list(_results(response.iter_lines()))

    def parsed(self, model: Model, body: Mapping[str, Any]) -> Delta:
        """Parse a message as the SDK does."""
        from anthropic.types import Message

        return MessageReader(model.model_id, self._known).whole(Message.construct(**body))

    def failed(self, error: Exception) -> AttemptFailed | None:
        """See :meth:`vinelm.backends.remote.transport.Transport.failed`."""
        return failed(error)

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()


def _results(lines: Iterator[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The calls of a file of results; a line that is none leaves its call without an answer, and the others with theirs."""
    for line in lines:
        try:
            one = json.loads(line)
            yield str(one["custom_id"]), _answer(one["result"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue


def _answer(result: Mapping[str, Any]) -> Mapping[str, Any]:
    if result["type"] == "succeeded":
        return {"body": dict(result["message"])}
    if result["type"] != "errored":
        unknown = failure("server", "the provider does not say how the call ended", may_be_billed=True)
        return _ENDED.get(str(result["type"]), unknown)
    body = result["error"]
    kind = (body.get("error") or {}).get("type")
    status = 500 if kind in _OF_THE_SERVER else 400
    known = refused(SimpleNamespace(status_code=status, body=body, response=SimpleNamespace(headers={})))
    return failure(known.kind, known.detail)
