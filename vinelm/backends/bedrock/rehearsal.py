"""A client of boto3 that answers from memory. Whole calls only: streamed ones import nothing more."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

_ANSWER = {
    "output": {"message": {"role": "assistant", "content": [{"text": "yes"}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
    "metrics": {"latencyMs": 1},
}


class RehearsingClient:
    """A boto3 client of the session that sends nothing."""

    def __init__(self, session: Any) -> None:
        nobody = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
        self.api = session.client("bedrock-runtime", region_name="us-east-1", **nobody)
        self.api.meta.events.register("before-send.bedrock-runtime.*", _answer)

    def close(self) -> None:
        """Close it."""
        self.api.close()


def _answer(request: Any, **_: Any) -> Any:
    from botocore.awsrequest import AWSResponse

    raw = _Raw(json.dumps(_ANSWER).encode())
    return AWSResponse(request.url, 200, {"content-type": "application/json"}, raw)


class _Raw(BytesIO):
    """A body, with the method that botocore reads it by."""

    def stream(self, *_: Any, **__: Any) -> Any:
        yield self.read()
