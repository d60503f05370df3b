"""Google's Gemini API over google-genai (extra ``gemini``). Calls spend money."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage

from vinelm.backends.gemini.batches import GeminiBatches
from vinelm.backends.gemini.client import clients_of, kept_responses, rehearsing_clients
from vinelm.backends.gemini.request import ModelSignatures, attempt_bound, check_options, config_options, content_request
from vinelm.backends.gemini.response import FINISH_FAILURES, GeminiStreamReader, billed_once_begun, failed
from vinelm.backends.http.sdk_transport import SdkTransport
from vinelm.backends.openai.client import named_key
from vinelm.backends.openai.response import begun
from vinelm.backends.remote.backend import RemoteBackend, check_base
from vinelm.backends.remote.client_pool import EventLoopClients
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.retry import AttemptFailed
from vinelm.backends.remote.transport import TransportRequest
from vinelm.backends.settings import ProviderSettings
from vinelm.backends.turns import CallMemory
from vinelm.catalog import Model
from vinelm.errors import ConfigError
from vinelm.extras import required_extra

if TYPE_CHECKING:
    from google.genai import Client


class GeminiTransport(SdkTransport["Client", "Client"]):
    """The transport over the SDK.

    In a catalog entry, ``api_key_env`` names the key's variable, ``api_base`` sets another endpoint, and ``options`` are
    fields of the SDK's ``GenerateContentConfig`` (``temperature``, ``thinking_config``, ...). The SDK's automatic function
    calling is disabled.
    """

    finish_failures = FINISH_FAILURES
    attempt_bound = staticmethod(attempt_bound)
    failed = staticmethod(failed)

    def __init__(self) -> None:
        super().__init__()
        self._signatures: CallMemory[bytes | None] = CallMemory()

    def request(
        self, model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
    ) -> TransportRequest:
        """Build the contents and the config."""
        return content_request(model, messages, options, self._signed(model), is_streamed=is_streamed)

    def check(self, model: Model) -> None:
        """Raise :class:`ConfigError` if the model's key or the SDK is missing, or an option is unknown."""
        self.credentials(model)
        if _config(model, config_options(model)) is None:
            raise ConfigError(f"model {model.name!r}: options are not of google-genai's GenerateContentConfig: see its names")

    def credentials(self, model: Model) -> dict[str, Any]:
        """Return the client's settings for authentication, and for the Google service to use."""
        return {"vertexai": False, "api_key": named_key(model, "GEMINI_API_KEY")}

    def send(self, model: Model, request: TransportRequest) -> Generator[Delta]:
        """Make one attempt."""
        models, reader = (
            self.clients.of(model).sync().models,
            GeminiStreamReader(self._signed(model)),
        )
        arguments = _arguments(model, request)
        kept: list[Any] = []
        try:
            with kept_responses(kept), billed_once_begun(kept):  # the stream begins with its first chunk
                if request.is_streamed:
                    chunks = iter(models.generate_content_stream(**arguments))
                    response = next(chunks, None)
                else:
                    chunks, response = iter(()), models.generate_content(**arguments)
            yield _begun(kept, request)
            while response is not None:
                yield reader.delta(response)
                with billed_once_begun(kept):
                    response = next(chunks, None)
        finally:
            for opened in kept:
                opened.close()

    async def asend(self, model: Model, request: TransportRequest) -> AsyncGenerator[Delta]:
        """Like :meth:`send`, for a coroutine."""
        models = (await self.clients.of(model).asynchronous()).aio.models
        reader = GeminiStreamReader(self._signed(model))
        arguments = _arguments(model, request)
        kept: list[Any] = []
        chunks: Any = None
        try:
            with kept_responses(kept), billed_once_begun(kept):
                if request.is_streamed:
                    chunks = aiter(await models.generate_content_stream(**arguments))
                    response = await anext(chunks, None)
                else:
                    response = await models.generate_content(**arguments)
            yield _begun(kept, request)
            while response is not None:
                yield reader.delta(response)
                with billed_once_begun(kept):
                    response = None if chunks is None else await anext(chunks, None)
        finally:
            for opened in kept:
                await opened.aclose()

    def batches(self) -> GeminiBatches | None:
        """See :class:`vinelm.backends.remote.transport.Transport`."""
        return GeminiBatches(self._signatures)

    def rehearsal(self) -> GeminiTransport:
        """See :class:`vinelm.backends.remote.transport.Transport`."""
        twin = GeminiTransport()
        twin.clients = rehearsing_clients()
        return twin

    def context_tokens(self, model: Model) -> int | None:
        """Return the model's input limit by the API."""
        with suppress(Exception):
            return self.clients.of(model).sync().models.get(model=model.model_id).input_token_limit
        return None

    def _signed(self, model: Model) -> ModelSignatures:
        return ModelSignatures(self._signatures, model.model_id)

    def _made(self, model: Model) -> EventLoopClients[Client, Client]:
        return clients_of(base_url=model.api_base, **self.credentials(model))


def _begun(kept: list[Any], request: TransportRequest) -> Delta:
    return begun(kept[-1].headers, is_streamed=request.is_streamed) if kept else Delta()


def _config(model: Model, config: Mapping[str, Any]) -> Any:
    """Return the SDK's config; None if it rejects the options. Raises :class:`ConfigError` without the SDK."""
    with required_extra("gemini", f"model {model.name!r}: Gemini"):
        from google.genai import types
    try:
        return types.GenerateContentConfig.model_validate(dict(config))
    except ValueError:
        return None  # pydantic's text may quote a prompt


def _arguments(model: Model, request: TransportRequest) -> dict[str, Any]:
    unfit = AttemptFailed("malformed", "google-genai has no such options or contents", is_final=True, may_be_billed=False)
    config = _config(model, {**request.body["config"], "http_options": {"timeout": round(model.timeout_s * 1000)}})
    if config is None:
        raise unfit
    from google.genai import types

    try:
        contents = [types.Content.model_validate(turn) for turn in request.body["contents"]]
    except ValueError:
        raise unfit from None
    return {"model": model.model_id, "contents": contents, "config": config}


def create(settings: ProviderSettings) -> RemoteBackend[GeminiTransport]:
    """Create the backend of the catalog's Gemini models. Makes no call. :class:`ConfigError` for invalid settings."""
    for model in settings.models:
        check_options(model, model.options)
        check_base(model)
    return RemoteBackend(settings, GeminiTransport())
