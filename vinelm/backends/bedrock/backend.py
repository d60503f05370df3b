"""Amazon Bedrock by boto3's Converse and ConverseStream (extra ``bedrock``). Spends money."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.bedrock.request import check_options, converse_request, upper_bound_usd
from vinelm.backends.bedrock.response import FINISH_FAILURES, begun, failed, pieces, whole
from vinelm.backends.remote.backend import RemoteBackend, check_base
from vinelm.backends.remote.client_pool import ClientPool, keep_quiet
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.retry import AttemptFailed
from vinelm.backends.remote.transport import TransportRequest
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import ConfigError, FailureKind

CONNECT_TIMEOUT_S = 15.0
MAX_CONNECTIONS = 256
"""Connections of one client, and threads that wait for asynchronous callers."""
BEARER = "AWS_BEARER_TOKEN_BEDROCK"


class BedrockWire:
    """The two thin shells around boto3; see :class:`vinelm.backends.remote.transport.Transport`."""

    finish_failures: Mapping[str, FailureKind] = FINISH_FAILURES

    def __init__(self) -> None:
        self.clients: ClientPool[Any] = ClientPool(
            _make_client, lambda model: (model.api_base, region_of(model), model.timeout_s)
        )
        self._threads = ThreadPoolExecutor(MAX_CONNECTIONS, thread_name_prefix="vinelm-bedrock")

    def check(self, model: Model) -> None:
        """:class:`ConfigError` if its region, its key or boto3 is missing."""
        self.clients.of(model)

    def request(
        self, model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
    ) -> TransportRequest:
        """The arguments of ``converse``."""
        return converse_request(model, messages, options, is_streamed=is_streamed)

    def upper_bound_usd(self, model: Model, body: Mapping[str, Any]) -> float:
        """Dollars that a call with that body cannot exceed."""
        return upper_bound_usd(model, body)

    def connect(self, model: Model) -> None:
        """Make the client."""
        self.clients.of(model)

    async def aconnect(self, model: Model) -> None:
        """The same: clients are shared by all event loops."""
        self.clients.of(model)

    def send(self, model: Model, request: TransportRequest) -> Generator[Delta]:
        """One attempt."""
        client = self.clients.of(model)
        if not request.is_streamed:
            reply = client.converse(modelId=model.model_id, **request.body)
            yield begun(reply)
            yield whole(reply)
            return
        reply = client.converse_stream(modelId=model.model_id, **request.body)
        try:
            yield begun(reply)
            for event in reply["stream"]:
                yield pieces(event)
        finally:
            reply["stream"].close()

    async def asend(self, model: Model, request: TransportRequest) -> AsyncGenerator[Delta]:
        """The same for a coroutine: a thread waits for each piece."""
        import asyncio

        deltas = self.send(model, request)
        step: Future[Delta | None] = Future()
        step.set_result(None)
        try:
            while True:
                step = self._threads.submit(next, deltas, None)
                delta = await asyncio.wrap_future(step)
                if delta is None:
                    return
                yield delta
        finally:
            _when_done(step, deltas.close)

    def failed(self, error: Exception) -> AttemptFailed | None:
        """What an exception of boto3 means."""
        return failed(error)

    def close(self) -> None:
        """Close all connections."""
        self.clients.close()
        self._threads.shutdown(wait=False)


class BedrockBackend(RemoteBackend[BedrockWire]):
    """Chat models on Bedrock. Credentials are boto3's: its usual chain, or a Bedrock API key in ``AWS_BEARER_TOKEN_BEDROCK``.

    An entry's option ``region`` says where (default: the environment's); ``api_base`` is another endpoint. boto3 is
    synchronous: asynchronous calls wait on threads of the backend's own.
    """


def region_of(model: Model) -> str:
    """Where the model runs; :class:`ConfigError` if nobody says so, or its key is in a variable that boto3 does not read."""
    if model.api_key_env not in (None, BEARER):
        raise ConfigError(f"model {model.name!r}: api_key_env is {model.api_key_env}: Bedrock's API key is read from {BEARER}")
    if model.api_key_env is not None and not os.environ.get(BEARER, "").strip():
        raise ConfigError(f"model {model.name!r}: environment variable {BEARER} is not set: put the API key there")
    region = model.options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError(f'model {model.name!r}: no AWS region: add options = {{ region = "us-east-1" }} or set AWS_REGION')
    return str(region)


def _make_client(model: Model) -> Any:
    try:
        import boto3
        import botocore.session
        from botocore.config import Config
    except ImportError as error:
        raise ConfigError(f"model {model.name!r}: Bedrock needs boto3: pip install 'vinelm[bedrock]'") from error
    keep_quiet("botocore.endpoint", "botocore.auth", "botocore.httpsession", "botocore.hooks", "botocore.parsers")
    config = Config(
        connect_timeout=min(model.timeout_s, CONNECT_TIMEOUT_S),
        read_timeout=model.timeout_s,
        retries={"total_max_attempts": 1},
        max_pool_connections=MAX_CONNECTIONS,
    )
    session = botocore.session.get_session()
    session.register_component("data_loader", _loader())
    made = boto3.Session(botocore_session=session)
    return made.client("bedrock-runtime", region_name=region_of(model), endpoint_url=model.api_base, config=config)


@cache
def _loader() -> Any:
    """What reads boto3's descriptions of services: kept, because reading them is nine tenths of making a client."""
    from botocore.loaders import create_loader

    return create_loader()


def _when_done(step: Future[Any], close: Callable[[], None]) -> None:
    """Close the generator that a thread may still be in: a caller that leaves does not wait for the server."""

    def finish(_: Future[Any]) -> None:
        close()

    if step.cancel() or step.done():
        close()
    else:
        step.add_done_callback(finish)


def create(setup: ProviderSettings) -> BedrockBackend:
    """The backend for a catalog's Bedrock models. Makes no call. :class:`ConfigError` names what does not fit."""
    for model in setup.models:
        check_options(model, model.options)
        check_base(model)
    return BedrockBackend(setup, BedrockWire())
