"""Anthropic's message batches. They carry no metadata, so we recognize our batches by the names of their calls.

Wire format: https://platform.claude.com/docs/en/build-with-claude/batch-processing
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from langchain_core.outputs import ChatResult

from vinelm.backends.keys import named_key
from vinelm.backends.openai.batches import LEAST_LISTED, NO_LIMIT_S, SKEW_S, Refusal, SdkBatches
from vinelm.backends.remote.batches import failure, unread, with_missing
from vinelm.backends.remote.failures import failed
from vinelm.backends.remote.provider import FoundBatch
from vinelm.catalog import Model

if TYPE_CHECKING:
    from anthropic import Anthropic

KEY_ENV = "ANTHROPIC_API_KEY"
HOME = "https://api.anthropic.com"
VERSION = "2023-06-01"
"""The API version that is requested, whatever the SDK's: 2026-10-21 refuses ``temperature``, which LangChain users set."""
AMBIENT_HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
"""An environment variable with headers that the SDK would send to every server."""
_ENDED: Mapping[str, Mapping[str, Any]] = {
    "expired": failure("timeout", "the batch expired before the call was made"),
    "canceled": failure("server", "the batch was cancelled before the call was made"),
}
_OF_THE_SERVER = ("api_error", "overloaded_error", "timeout_error")


class AnthropicBatches(SdkBatches["Anthropic"]):
    """The interface to Anthropic's message batches: it uses Anthropic's Python SDK to submit, find and read batches."""

    halves_cache = True
    most_calls, most_bytes = 100_000, 240 << 20

    def __init__(self) -> None:
        super().__init__(_client)

    def submit(self, model: Model, key: str, calls: Mapping[str, Mapping[str, Any]]) -> str:
        """Submit ``calls``, a mapping from a call's name to its request body, as one batch. Return the provider's batch id.

        ``key``, VineLM's key for the batch, is not sent, because the name of each call already begins with the key.
        """
        bodies = {name: dict(body) for name, body in calls.items()}
        betas: dict[str, None] = {}
        for body in bodies.values():
            asked = body.pop("betas", None) or ()
            betas |= dict.fromkeys([asked] if isinstance(asked, str) else asked)
        requests: Any = [{"custom_id": name, "params": body} for name, body in bodies.items()]
        headers = {"anthropic-beta": ",".join(betas)} if betas else {}
        messages = self._clients.of(model).messages
        return messages.batches.create(requests=requests, extra_headers=headers, timeout=NO_LIMIT_S).id

    def find(self, model: Model, key: str, since_s: float, calls: int, known: frozenset[str]) -> FoundBatch:
        """Search the provider's list for our batch ``key``; see :meth:`BatchApi.find
        <vinelm.backends.remote.provider.BatchApi.find>`.

        Anthropic shows the calls of a batch only once the batch has ended. So if our batch is not found, the result is marked
        as uncertain while another batch with the same number of calls is running.
        """
        batches, is_certain = self._clients.of(model).messages.batches, True
        for number, batch in enumerate(batches.list(limit=100)):
            if number >= LEAST_LISTED and batch.created_at.timestamp() < since_s - SKEW_S:
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
        """Return pairs of a call's name and its result; None if the batch has not ended."""
        batches = self._clients.of(model).messages.batches
        batch = batches.retrieve(provider_id)
        if batch.processing_status != "ended":
            return None
        with batches.with_streaming_response.results(provider_id, timeout=NO_LIMIT_S) as response:
            found = list(_results(response.iter_lines()))
        return with_missing(found, getattr(batch.request_counts, "succeeded", None))

    def parsed(self, model: Model, body: Mapping[str, Any]) -> ChatResult:
        """Return ``body``, an Anthropic message as JSON, as the chat result that langchain-anthropic makes of it."""
        from anthropic.types import Message

        result: ChatResult = self.chat_of(model)._format_output(Message.model_validate(dict(body)))  # type: ignore[attr-defined]
        return result


def _client(model: Model) -> Anthropic:
    from anthropic import Anthropic

    key, base = named_key(model, KEY_ENV), model.api_base or HOME
    headers = {"anthropic-version": str(model.options.get("anthropic_version", VERSION)), **own_headers(key, base)}
    return Anthropic(api_key=key, base_url=base, max_retries=0, default_headers=headers)


def own_headers(key: str, base: str) -> dict[str, Any]:
    """Return HTTP headers that send ``key`` to the server at ``base`` and no other credentials that the SDK finds in the
    environment.
    """
    from anthropic import Omit

    lines = "" if base.startswith(HOME) else os.environ.get(AMBIENT_HEADERS, "")
    foreign = {line.partition(":")[0].strip(): Omit() for line in lines.split("\n") if ":" in line}
    return {**foreign, "x-api-key": key, "Authorization": Omit()}


def _results(lines: Iterator[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the result of each call in a results file.

    A call whose line is invalid gets a failure as its result.
    """
    for line in lines:
        name = None
        try:
            one = json.loads(line)
            name = str(one["custom_id"])
            yield name, _answer(one["result"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            yield from unread(name)


def _answer(result: Mapping[str, Any]) -> Mapping[str, Any]:
    if result["type"] == "succeeded":
        return {"body": dict(result["message"])}
    if result["type"] != "errored":
        unknown = failure("server", "the provider does not say how the call ended", may_be_billed=True)
        return _ENDED.get(str(result["type"]), unknown)
    body = result["error"]
    kind = (body.get("error") or {}).get("type")
    status = 500 if kind in _OF_THE_SERVER else 400
    known = failed(Refusal(status, body), has_begun=False)
    return failure(known.kind, known.detail)
