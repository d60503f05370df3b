"""OpenAI's batches: a file of requests, and result files of answers and errors.

Wire format: https://platform.openai.com/docs/guides/batch and .../api-reference/batch
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Generic

from langchain_core.language_models import BaseChatModel
from langchain_core.outputs import ChatResult

from vinelm.backends.keys import own_or_no_key
from vinelm.backends.remote.batches import failure, unread, with_missing
from vinelm.backends.remote.clients import C, Clients
from vinelm.backends.remote.failures import failed
from vinelm.backends.remote.meter import ModelRequest
from vinelm.backends.remote.provider import BatchApi, FoundBatch
from vinelm.backends.remote.sender import asked
from vinelm.catalog import Model

if TYPE_CHECKING:
    from openai import OpenAI

SKEW_S = 3600.0
"""Assumed difference between the provider's clock and ours, in seconds."""
LEAST_LISTED = 300
"""How many batches of a provider's list are searched, however old: our clock may have been wrong when ours was recorded."""
NO_LIMIT_S = 3600.0
"""Timeout in seconds for a file of a whole batch."""
ENDPOINT: Final = "/v1/chat/completions"
KEY = "vinelm"
"""The name of our key in a batch's metadata."""
_ENDED = ("completed", "failed", "expired", "cancelled")
_FOR_THE_SDK = ("stream", "stream_options", "extra_headers", "extra_query", "timeout")


class SdkBatches(BatchApi, Generic[C]):
    """The base class for batches of providers whose SDK supports batches. It keeps one client for each server and key."""

    def __init__(self, client: Callable[[Model], C]) -> None:
        self._clients: Clients[C] = Clients(client, lambda model: (model.api_base, model.api_key_env))

    def body(self, chat: BaseChatModel, request: ModelRequest) -> Mapping[str, Any]:
        """Return the body of a call's request, as the chat model's package builds it."""
        own, options = asked(chat, request)
        payload = own._get_request_payload(list(request.messages), stop=request.stop, **options)  # type: ignore[attr-defined]
        more = payload.pop("extra_body", None) or {}
        return {**{key: one for key, one in payload.items() if key not in _FOR_THE_SDK}, **more}

    def close(self) -> None:
        """Close the SDK clients' connections."""
        self._clients.close()


class OpenAIBatches(SdkBatches["OpenAI"]):
    """The interface to OpenAI's batches, and to batches of other servers with the same API. It uses OpenAI's Python SDK."""

    most_calls, most_bytes = 50_000, 190 << 20

    def __init__(self) -> None:
        super().__init__(_client)

    def submit(self, model: Model, key: str, calls: Mapping[str, Mapping[str, Any]]) -> str:
        """Upload ``calls``, a mapping from a call's name to its request body, start the batch, and return the provider's batch
        id.

        ``key``, VineLM's key for the batch, is stored in the batch's metadata. If the batch cannot be started, the upload costs
        nothing.
        """
        client = self._clients.of(model)
        lines = (_line(name, body) for name, body in calls.items())
        content = "\n".join(lines).encode("utf-8", "replace") + b"\n"
        file = client.files.create(file=(f"{key}.jsonl", content), purpose="batch", timeout=NO_LIMIT_S)
        batch = client.batches.create(
            input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h", metadata={KEY: key}, timeout=NO_LIMIT_S
        )
        return batch.id

    def find(self, model: Model, key: str, since_s: float, calls: int, known: frozenset[str]) -> FoundBatch:
        """Search the provider's list for our batch, by its metadata; see :meth:`BatchApi.find
        <vinelm.backends.remote.provider.BatchApi.find>`.
        """
        for number, batch in enumerate(self._clients.of(model).batches.list(limit=100)):
            if (batch.metadata or {}).get(KEY) == key:
                return FoundBatch(batch.id)
            if number >= LEAST_LISTED and batch.created_at < since_s - SKEW_S:
                break
        return FoundBatch(None)

    def answers(self, model: Model, provider_id: str) -> Sequence[tuple[str, Mapping[str, Any]]] | None:
        """Return pairs of a call's name and its result, read from the batch's files of answers and errors; None if the batch
        has not ended.
        """
        client = self._clients.of(model)
        batch = client.batches.retrieve(provider_id)
        if batch.status not in _ENDED:
            return None
        found: list[tuple[str, Mapping[str, Any]]] = []
        for file_id in (batch.output_file_id, batch.error_file_id):
            if file_id:
                found += _results(client.files.content(file_id, timeout=NO_LIMIT_S).content)
        if batch.status == "expired":
            rest = failure("timeout", "the batch expired before the call was made")
        elif batch.status == "cancelled":
            rest = failure("server", "the batch was cancelled before the call was made")
        elif batch.status == "failed":
            codes = [error.code for error in (batch.errors.data if batch.errors is not None else None) or ()]
            is_full = "token_limit_exceeded" in codes
            said = "too many tokens are queued: use fewer --workers" if is_full else "the provider refused the batch"
            rest = failure("rate_limit" if is_full else "malformed", said)
        else:
            rest = None
        if rest is not None:
            found.append((self.REST, rest))
        # What the batch has completed is billed, whether or not the files contain it.
        return with_missing(found, getattr(batch.request_counts, "completed", None))

    def parsed(self, model: Model, body: Mapping[str, Any]) -> ChatResult:
        """Return ``body``, an OpenAI completion as JSON, as the chat result that langchain-openai makes of it."""
        result: ChatResult = self.chat_of(model)._create_chat_result(dict(body))  # type: ignore[attr-defined]
        return result


def _client(model: Model) -> OpenAI:
    from openai import OpenAI

    client = OpenAI(api_key=own_or_no_key(model, "OPENAI_API_KEY"), base_url=model.api_base, max_retries=0)
    if model.api_base is not None:  # the account that the SDK finds in the environment is for OpenAI only
        client.organization = client.project = None
    return client


def _line(name: str, body: Mapping[str, Any]) -> str:
    return json.dumps({"custom_id": name, "method": "POST", "url": ENDPOINT, "body": body}, ensure_ascii=False, default=str)


def _results(content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the result of each call in a file of answers or errors.

    A call whose line is invalid gets a failure as its result.
    """
    for line in content.decode("utf-8", "replace").splitlines():
        name = None
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
            yield from unread(name)


def _turned_down(status: int, body: Mapping[str, Any]) -> Mapping[str, Any]:
    known = failed(Refusal(status, body.get("error") or {}), has_begun=False)
    return failure(known.kind, known.detail, may_be_billed=bool(body.get("usage")))  # who counts tokens bills for them


class Refusal(Exception):
    """An API error that a results file states for a call. It has the same attributes as the errors of OpenAI's SDK."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__()
        self.status_code, self.body, self.response = status, body, SimpleNamespace(headers={}, status_code=status)
