"""Clients of google-genai that answer from memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from vinelm.backends.gemini.client import client_over
from vinelm.backends.http.clients import answering_client
from vinelm.backends.remote.client_pool import ClientPool, EventLoopClients, rehearsing_pool

if TYPE_CHECKING:
    from google.genai import Client

_ANSWER = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "yes"}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
}


def rehearsing_clients() -> ClientPool[EventLoopClients[Client, Client]]:
    """Return a pool of synchronous clients that answer every call alike."""

    def make() -> tuple[Client, Any]:
        http = answering_client("httpx2", _ANSWER, f"data: {json.dumps(_ANSWER)}\n\n")
        return client_over({"vertexai": False, "api_key": "none"}, httpx_client=http), http.close

    return rehearsing_pool(make)
