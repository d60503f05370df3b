"""Amazon Bedrock over boto3's Converse and ConverseStream (extra ``bedrock``). Calls spend money."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.bedrock.rehearsal import rehearsing_client
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


class BedrockTransport:
    """The transport over boto3; see :class:`vinelm.backends.remote.transport.Transport`."""

    finish_failures: Mapping[str, FailureKind] = FINISH_FAILURES

    def __init__(self) -> None:
        self.clients: ClientPool[Any] = ClientPool(
            _make_client, lambda model: (model.api_base, region_of(model), model.timeout_s)
        )
        self._threads = ThreadPoolExecutor(MAX_CONNECTIONS, thread_name_prefix="vinelm-bedrock")

    def check(self, model: Model) -> None:
        """Raise :class:`ConfigError` if the model's region, its key or boto3 is missing."""
        self.clients.of(model)

    def request(
        self, model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
    ) -> TransportRequest:
        """Build the arguments of ``converse``."""
        return converse_request(model, messages, options, is_streamed=is_streamed)

    def upper_bound_usd(self, model: Model, body: Mapping[str, Any]) -> float:
        """Return an upper bound of the call's cost in dollars."""
        return upper_bound_usd(model, body)

    def connect(self, model: Model) -> None:
        """Create the client."""
        self.clients.of(model)

    async def aconnect(self, model: Model) -> None:
        """Create the client; it is shared by all event loops."""
        self.clients.of(model)

    def send(self, model: Model, request: TransportRequest) -> Generator[Delta]:
        """Make one attempt."""
        client = self.clients.of(model)
        if not request.is_streamed:
            response = client.converse(modelId=model.model_id, **request.body)
            yield begun(response)
            yield whole(response)
            return
        response = client.converse_stream(modelId=model.model_id, **request.body)
        try:
            yield begun(response)
            for event in response["stream"]:
                yield pieces(event)
        finally:
            response["stream"].close()

    async def asend(self, model: Model, request: TransportRequest) -> AsyncGenerator[Delta]:
        """Like :meth:`send`, for a coroutine: a thread waits for each piece."""
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
        """Translate an exception of boto3."""
        return failed(error)

    def rehearsal(self) -> BedrockTransport:
        """See :class:`vinelm.backends.remote.rehearsal.Rehearses`."""
        twin = type(self)()
        twin.clients = ClientPool(lambda model: rehearsing_client(_session(model)), lambda model: None)
        return twin

    def close(self) -> None:
        """Close all connections."""
        self.clients.close()
        self._threads.shutdown(wait=False)


class BedrockBackend(RemoteBackend[BedrockTransport]):
    """Chat models on Bedrock.

    Credentials come from boto3's usual chain, or from a Bedrock API key in ``AWS_BEARER_TOKEN_BEDROCK``. A catalog entry's
    option ``region`` sets the region (default: the environment's), ``api_base`` another endpoint. boto3 is synchronous: async
    calls wait on threads of the backend.
    """


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


def _make_client(model: Model) -> Any:
    session = _session(model)
    from botocore.config import Config

    keep_quiet("botocore.endpoint", "botocore.auth", "botocore.httpsession", "botocore.hooks", "botocore.parsers")
    config = Config(
        connect_timeout=min(model.timeout_s, CONNECT_TIMEOUT_S),
        read_timeout=model.timeout_s,
        retries={"total_max_attempts": 1},
        max_pool_connections=MAX_CONNECTIONS,
    )
    return session.client("bedrock-runtime", region_name=region_of(model), endpoint_url=model.api_base, config=config)


def _session(model: Model) -> Any:
    """Return a session of boto3; :class:`ConfigError` if it is not installed."""
    try:
        import boto3
        import botocore.session
    except ImportError as error:
        raise ConfigError(f"model {model.name!r}: Bedrock needs boto3: pip install 'vinelm[bedrock]'") from error
    session = botocore.session.get_session()
    session.register_component("data_loader", _loader())
    return boto3.Session(botocore_session=session)


@cache
def _loader() -> Any:
    """Return the loader of boto3's service descriptions. It is cached: loading them takes 90 % of creating a client."""
    from botocore.loaders import create_loader

    return create_loader()


def _when_done(step: Future[Any], close: Callable[[], None]) -> None:
    """Close a generator as soon as its thread is done with it, without making a cancelled caller wait for the server."""

    def finish(_: Future[Any]) -> None:
        close()

    if step.cancel() or step.done():
        close()
    else:
        step.add_done_callback(finish)


def create(settings: ProviderSettings) -> BedrockBackend:
    """Create the backend of the catalog's Bedrock models. Makes no call. :class:`ConfigError` for invalid settings."""
    for model in settings.models:
        check_options(model, model.options)
        check_base(model)
    return BedrockBackend(settings, BedrockTransport())
