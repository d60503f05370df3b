"""Gemini's batches, with their requests inline. The display name of each batch is VineLM's own key for that batch.

Wire format: https://ai.google.dev/gemini-api/docs/batch-api
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.outputs import ChatResult

from vinelm.backends.keys import named_key
from vinelm.backends.openai.batches import LEAST_LISTED, SKEW_S, Refusal, SdkBatches
from vinelm.backends.remote.batches import failure
from vinelm.backends.remote.failures import failed
from vinelm.backends.remote.meter import ModelRequest
from vinelm.backends.remote.provider import FoundBatch
from vinelm.backends.remote.sender import asked
from vinelm.catalog import Model

if TYPE_CHECKING:
    from google.genai import Client

NAME = "key"
"""Metadata key of a request that holds the name of its call."""
_ENDED = ("SUCCEEDED", "PARTIALLY_SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED")
_REST = {
    "FAILED": failure("server", "the provider could not run the batch"),
    "CANCELLED": failure("server", "the batch was cancelled before the call was made"),
    "EXPIRED": failure("timeout", "the batch expired before the call was made"),
}


class GeminiBatches(SdkBatches["Client"]):
    """The interface to Gemini's batches: it uses Google's Python SDK to submit, find and read batches."""

    most_calls, most_bytes = 10_000, 18 << 20  # the API takes 20 MB inline

    def __init__(self) -> None:
        super().__init__(_client)

    def body(self, chat: BaseChatModel, request: ModelRequest) -> Mapping[str, Any]:
        """Return the ``contents`` and ``config`` of a call's request, as langchain-google-genai builds them."""
        own, options = asked(chat, request)
        made: Any = own._prepare_request(list(request.messages), stop=request.stop, **options)  # type: ignore[attr-defined]
        config = _plain(made["config"])
        config.pop("http_options", None)
        return {"contents": [_plain(one) for one in made["contents"]], "config": config}

    def submit(self, model: Model, key: str, calls: Mapping[str, Mapping[str, Any]]) -> str:
        """Submit ``calls``, a mapping from a call's name to its request body, as one batch. Return the provider's batch id.

        ``key``, VineLM's key for the batch, becomes the batch's display name.
        """
        requests: Any = [
            {"contents": body["contents"], "config": dict(body["config"]), "metadata": {NAME: name}}
            for name, body in calls.items()
        ]
        batches = self._clients.of(model).batches
        return str(batches.create(model=model.model_id, src=requests, config={"display_name": key}).name)

    def find(self, model: Model, key: str, since_s: float, calls: int, known: frozenset[str]) -> FoundBatch:
        """Search the provider's list for our batch, by its display name; see :meth:`BatchApi.find
        <vinelm.backends.remote.provider.BatchApi.find>`.
        """
        for number, job in enumerate(self._clients.of(model).batches.list(config={"page_size": 100})):
            if job.display_name == key and job.name:
                return FoundBatch(job.name)
            if number >= LEAST_LISTED and job.create_time is not None and job.create_time.timestamp() < since_s - SKEW_S:
                break
        return FoundBatch(None)

    def answers(self, model: Model, provider_id: str) -> Sequence[tuple[str, Mapping[str, Any]]] | None:
        """Return pairs of a call's name and its result; None if the batch has not ended."""
        job = self._clients.of(model).batches.get(name=provider_id)
        state = str(getattr(job.state, "value", job.state)).removeprefix("JOB_STATE_")
        if state not in _ENDED:
            return None
        found: list[tuple[str, Mapping[str, Any]]] = [(self.REST, _REST[state])] if state in _REST else []
        for one in (job.dest.inlined_responses if job.dest is not None else None) or ():
            name = (one.metadata or {}).get(NAME)
            if name and one.response is not None:
                body = one.response.model_dump(mode="json", exclude_none=True, exclude={"sdk_http_response"})
                found.append((name, {"body": body}))
            elif name and one.error is not None:
                found.append((name, _turned_down(one.error)))
        return found

    def parsed(self, model: Model, body: Mapping[str, Any]) -> ChatResult:
        """Return ``body``, a Gemini response as JSON, as the chat result that langchain-google-genai makes of it."""
        from google.genai.types import GenerateContentResponse
        from langchain_google_genai.chat_models import _response_to_result

        # Unpaired surrogates become "?": pydantic cannot read JSON that contains them.
        response = GenerateContentResponse.model_validate_json(json.dumps(body, ensure_ascii=False).encode(errors="replace"))
        if not response.candidates and response.prompt_feedback is None and response.usage_metadata is None:
            msg = "a response without candidates, without feedback on its prompt and without usage"
            raise ValueError(msg)
        return _response_to_result(response)


def _client(model: Model) -> Client:
    from google.genai import Client
    from google.genai.types import HttpOptions

    options = HttpOptions(base_url=model.api_base, client_args={"follow_redirects": False})  # the key is the entry's server's
    return Client(vertexai=False, api_key=named_key(model, "GEMINI_API_KEY"), http_options=options)


def _plain(value: Any) -> dict[str, Any]:
    """Return ``value``, an object of the SDK, as plain JSON types."""
    found: dict[str, Any] = value.model_dump(mode="json", exclude_none=True) if hasattr(value, "model_dump") else dict(value)
    return found


# google.rpc.Code to the HTTP status that stands for it
_STATUS = {3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 400, 13: 500, 14: 503, 16: 401}


def _turned_down(error: Any) -> Mapping[str, Any]:
    status = _STATUS.get(error.code, error.code)
    known = failed(Refusal(status, {"message": error.message}), has_begun=False)
    return failure(known.kind, known.detail)
