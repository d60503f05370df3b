"""OpenAI's batches: a file of requests, and files of answers and errors.

Wire format: https://platform.openai.com/docs/guides/batch and .../api-reference/batch
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from vinelm.backends.http.answer_body import BodyLimits
from vinelm.backends.http.deadline import NO_LIMIT_S
from vinelm.backends.openai.client import api_key, clients_of
from vinelm.backends.openai.response import delta_of, failed, refused
from vinelm.backends.remote.batches import failure
from vinelm.backends.remote.client_pool import ClientPool, EventLoopClients
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.retry import AttemptFailed
from vinelm.backends.remote.transport import BatchApi, FoundBatch, TransportRequest
from vinelm.catalog import Model

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

HOME = "https://api.openai.com/v1"
RESULTS = BodyLimits(whole=1 << 30)
"""The largest file of answers: of a whole batch."""
SKEW_S = 3600.0
"""By how much the provider's clock may differ from ours."""
ENDPOINT: Final = "/v1/chat/completions"
KEY = "vinelm"
"""The name of our key in a batch's metadata."""
_ENDED = ("completed", "failed", "expired", "cancelled")


class OpenAIBatches(BatchApi):
    """Batches over the SDK, for OpenAI and servers with its API."""

    most_calls, most_bytes = 50_000, 190 << 20

    def __init__(self) -> None:
        self._clients: ClientPool[EventLoopClients[OpenAI, AsyncOpenAI]] = ClientPool(
            lambda model: clients_of(model.api_base or HOME, api_key(model), RESULTS),
            lambda model: (model.api_base, model.api_key_env),
        )

    def submit(self, model: Model, key: str, calls: Mapping[str, TransportRequest]) -> str:
        """Upload the requests and begin the batch. Without the batch the file costs nothing."""
        client = self._clients.of(model).sync()
        lines = (_line(model, name, request) for name, request in calls.items())
        content = "\n".join(lines).encode("utf-8", "replace") + b"\n"
        file = client.files.create(file=(f"{key}.jsonl", content), purpose="batch", timeout=NO_LIMIT_S)
        batch = client.batches.create(
            input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h", metadata={KEY: key}, timeout=NO_LIMIT_S
        )
        return batch.id

    def find(self, model: Model, key: str, since_s: float, calls: int, known: frozenset[str]) -> FoundBatch:
        """Search by the metadata."""
        for batch in self._clients.of(model).sync().batches.list(limit=100):
            if (batch.metadata or {}).get(KEY) == key:
                return FoundBatch(batch.id)
            if batch.created_at < since_s - SKEW_S:
                break
        return FoundBatch(None)

    def answers(self, model: Model, provider_id: str) -> Sequence[tuple[str, Mapping[str, Any]]] | None:
        """Read both files of a batch that has ended."""
        client = self._clients.of(model).sync()
        batch = client.batches.retrieve(provider_id)
        if batch.status not in _ENDED:
            return None
        found: list[tuple[str, Mapping[str, Any]]] = []
        for file_id in (batch.output_file_id, batch.error_file_id):
            if file_id:
                found += _results(client.files.content(file_id, timeout=NO_LIMIT_S).content)
        # What it has completed is billed, whether or not the files have it.
        completed = getattr(batch.request_counts, "completed", None)
        is_short = isinstance(completed, int) and completed > len({name for name, answer in found if "body" in answer})
        if batch.status == "expired":
            rest = failure("timeout", "the batch expired before the call was made", may_be_billed=is_short)
        elif batch.status == "cancelled":
            rest = failure("server", "the batch was cancelled before the call was made", may_be_billed=is_short)
        elif batch.status == "failed":
            codes = [error.code for error in (batch.errors.data if batch.errors is not None else None) or ()]
            is_full = "token_limit_exceeded" in codes
            said = "too many tokens are queued: use fewer --workers" if is_full else "the provider refused the batch"
            rest = failure("rate_limit" if is_full else "malformed", said, may_be_billed=is_short)
        else:
            return found
        return [*found, (self.REST, rest)]

    def parsed(self, model: Model, body: Mapping[str, Any]) -> Delta:
        """Parse a completion as the SDK does."""
        from openai.types.chat import ChatCompletion

        return delta_of(ChatCompletion.construct(**body), is_streamed=False)

    def failed(self, error: Exception) -> AttemptFailed | None:
        """See :meth:`vinelm.backends.remote.transport.Transport.failed`."""
        return failed(error)

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()


def _line(model: Model, name: str, request: TransportRequest) -> str:
    body = {"model": model.model_id, **request.body}
    return json.dumps({"custom_id": name, "method": "POST", "url": ENDPOINT, "body": body}, ensure_ascii=False)


def _results(content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The calls of a file of answers, or of errors; a line that is none leaves its call without an answer."""
    for line in content.decode("utf-8", "replace").splitlines():
        try:
            one = json.loads(line)
            name, response, error = str(one["custom_id"]), one.get("response"), one.get("error")
            if response is not None:
                status, body = int(response["status_code"]), response["body"]
                yield name, {"body": dict(body)} if status == 200 else _turned_down(status, body)
            elif error is not None:
                is_expired = error.get("code") == "batch_expired"
                said = "the batch expired before the call was made" if is_expired else "the provider could not make the call"
                yield name, failure("timeout" if is_expired else "server", said)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue


def _turned_down(status: int, body: Mapping[str, Any]) -> Mapping[str, Any]:
    error = body.get("error") or {}
    said = {name: error.get(name) for name in ("code", "type", "message")}
    told = SimpleNamespace(**said, status_code=status, body=error, response=SimpleNamespace(headers={}))
    known = refused(told)
    return failure(known.kind, known.detail, may_be_billed=bool(body.get("usage")))  # who counts tokens bills for them
