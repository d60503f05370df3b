"""boto3 clients whose requests go over our own HTTP client, which bounds their time and size."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from typing import Any

from vinelm.backends.http.clients import http_client, library_of_openai
from vinelm.backends.remote.client_pool import keep_quiet
from vinelm.catalog import Model
from vinelm.errors import ConfigError
from vinelm.extras import required_extra

MAX_CONNECTIONS = 256
"""Connections of one client, and threads that wait for asynchronous callers."""
BEARER = "AWS_BEARER_TOKEN_BEDROCK"


class BedrockClient:
    """One boto3 client and its connections. Thread-safe.

    boto3 builds, signs and parses; a handler of its ``before-send`` event sends the finished request, because urllib3 below
    boto3 bounds each read of a socket only.
    """

    def __init__(self, model: Model) -> None:
        self._timeout_s = model.timeout_s
        self.api = _boto_client(model)
        self._http = http_client(library_of_openai(), ca_file=_ca_file())
        self.api.meta.events.register("before-send.bedrock-runtime", self._send)

    def close(self) -> None:
        """Close all connections."""
        self.api.close()
        self._http.close()

    def _send(self, request: Any, **_: Any) -> Any:
        from botocore.awsrequest import AWSResponse

        headers = {
            key: value.decode("latin-1") if isinstance(value, bytes) else str(value)
            for key, value in request.headers.items()
            if key.lower() != "transfer-encoding"
        }
        made = self._http.build_request(
            request.method, request.url, headers=headers, content=request.body or b"", timeout=self._timeout_s
        )
        response = self._http.send(made, stream=True)
        answer = AWSResponse(request.url, response.status_code, response.headers, RawAnswer(response))
        if not request.stream_output or response.status_code >= 300:
            try:
                answer.content  # noqa: B018 - reads it all, as boto3's own sender does
            finally:
                response.close()
        return answer


class RawAnswer:
    """A response of httpx with the methods of urllib3's that boto3 calls."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        """Yield the bytes of the body."""
        yield from self._response.iter_bytes()

    def close(self) -> None:
        """Release the connection."""
        self._response.close()


def _ca_file() -> str | None:
    """Return the file of certificates that boto3 is told to trust."""
    return os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE") or None


def region_of(model: Model) -> str:
    """Return the model's region; :class:`ConfigError` if there is none, or boto3 does not read the entry's key variable."""
    if model.api_key_env not in (None, BEARER):
        raise ConfigError(f"model {model.name!r}: api_key_env is {model.api_key_env}: Bedrock's API key is read from {BEARER}")
    if model.api_key_env is not None and not os.environ.get(BEARER, "").strip():
        raise ConfigError(f"model {model.name!r}: environment variable {BEARER} is not set: put the API key there")
    region = model.options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError(f'model {model.name!r}: no AWS region: add options = {{ region = "us-east-1" }} or set AWS_REGION')
    return str(region)


def _boto_client(model: Model) -> Any:
    session = boto_session(model)
    from botocore.config import Config

    keep_quiet("botocore.endpoint", "botocore.auth", "botocore.httpsession", "botocore.hooks", "botocore.parsers")
    config = Config(retries={"total_max_attempts": 1}, max_pool_connections=MAX_CONNECTIONS)
    return session.client("bedrock-runtime", region_name=region_of(model), endpoint_url=model.api_base, config=config)


def boto_session(model: Model) -> Any:
    """Return a session of boto3; :class:`ConfigError` if it is not installed."""
    with required_extra("bedrock", f"model {model.name!r}: Bedrock"):
        import boto3
        import botocore.session
    session = botocore.session.get_session()
    session.register_component("data_loader", _loader())
    return boto3.Session(botocore_session=session)


@cache
def _loader() -> Any:
    """Return the loader of boto3's service descriptions. It is cached: loading them takes 90 % of creating a client."""
    from botocore.loaders import create_loader

    return create_loader()


# -- rehearsals: of whole calls only, streamed ones import nothing more --------------------------------------------

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
