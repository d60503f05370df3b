"""Amazon Bedrock over boto3's Converse and ConverseStream (extra ``bedrock``). Calls spend money."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.bedrock.cache_marks import marked, prompt_parts
from vinelm.backends.bedrock.client import MAX_CONNECTIONS, BedrockClient, RehearsingClient, boto_session, region_of
from vinelm.backends.bedrock.request import attempt_bound, check_options, converse_request
from vinelm.backends.bedrock.response import FINISH_FAILURES, begun, failed, pieces, whole
from vinelm.backends.remote.backend import RemoteBackend, check_base
from vinelm.backends.remote.client_pool import ClientPool
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.transport import Transport, TransportRequest
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model


class BedrockTransport(Transport):
    """The transport over boto3.

    Credentials come from boto3's usual chain, or from a Bedrock API key in ``AWS_BEARER_TOKEN_BEDROCK``. A catalog entry's
    option ``region`` sets the region (default: the environment's), ``api_base`` another endpoint. boto3 is synchronous: async
    calls wait on threads of the transport.
    """

    finish_failures = FINISH_FAILURES
    takes_marks = True
    attempt_bound = staticmethod(attempt_bound)
    prompt_parts = staticmethod(prompt_parts)
    failed = staticmethod(failed)

    def __init__(self) -> None:
        self.clients: ClientPool[BedrockClient | RehearsingClient] = ClientPool(
            BedrockClient, lambda model: (model.api_base, region_of(model), model.timeout_s)
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

    def marked(self, model: Model, body: Mapping[str, Any], marks: Collection[int], first: int) -> Mapping[str, Any]:
        """Return a copy of the body with cache marks."""
        return marked(body, marks)

    def connect(self, model: Model) -> None:
        """Create the client; it is shared by all event loops."""
        self.clients.of(model)

    def send(self, model: Model, request: TransportRequest) -> Generator[Delta]:
        """Make one attempt."""
        client = self.clients.of(model).api
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

    def rehearsal(self) -> BedrockTransport:
        """See :class:`vinelm.backends.remote.transport.Transport`."""
        twin = type(self)()
        twin.clients = ClientPool(lambda model: RehearsingClient(boto_session(model)), lambda model: None)
        return twin

    def close(self) -> None:
        """Close all connections."""
        self.clients.close()
        self._threads.shutdown(wait=False)


def _when_done(step: Future[Any], close: Callable[[], None]) -> None:
    """Close a generator as soon as its thread is done with it, without making a cancelled caller wait for the server."""

    def finish(_: Future[Any]) -> None:
        close()

    if step.cancel() or step.done():
        close()
    else:
        step.add_done_callback(finish)


def create(settings: ProviderSettings) -> RemoteBackend[BedrockTransport]:
    """Create the backend of the catalog's Bedrock models. Makes no call. :class:`ConfigError` for invalid settings."""
    for model in settings.models:
        check_options(model, model.options)
        check_base(model)
    return RemoteBackend(settings, BedrockTransport())
