"""OpenAI, and servers with its chat completions API (vLLM, SGLang, ...) by ``api_base``. Calls spend money."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.http.deadline import CONNECT_TIMEOUT_S
from vinelm.backends.http.sdk_transport import RawSdkTransport
from vinelm.backends.openai.batches import OpenAIBatches
from vinelm.backends.openai.client import CHUNKS, COMPLETION, OpenAISdkTransport, named_key, rehearsing_clients, timeout_of
from vinelm.backends.openai.request import attempt_bound, cache_key, check_options, completion_request, prompt_parts
from vinelm.backends.openai.response import FINISH_FAILURES, begun, delta_of, failed
from vinelm.backends.remote.backend import RemoteBackend, check_base
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.transport import TransportRequest
from vinelm.backends.settings import ProviderSettings
from vinelm.backends.structured_output import METHODS, Structured, response_format
from vinelm.catalog import Model
from vinelm.errors import ConfigError

TOOLS_ONLY = ("gpt-3", "gpt-4-")
"""OpenAI's models from before structured output."""


class OpenAITransport(OpenAISdkTransport, RawSdkTransport[Any, Any]):
    """The transport over the SDK.

    A catalog entry's ``options`` are added to the request's body unchanged, so that parameters of a server (``top_k``,
    ``chat_template_kwargs``) work; the server rejects unknown ones.
    """

    finish_failures = FINISH_FAILURES
    attempt_bound = staticmethod(attempt_bound)
    prompt_parts = staticmethod(prompt_parts)
    failed = staticmethod(failed)
    _begun = staticmethod(begun)

    def request(
        self, model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
    ) -> TransportRequest:
        """Build the body of the completion."""
        return completion_request(model, messages, options, is_streamed=is_streamed)

    def marked(self, model: Model, body: Mapping[str, Any], marks: Collection[int], first: int) -> Mapping[str, Any]:
        """Return a copy with the key by which OpenAI sends prompts with the same beginning to the same cache."""
        return {**cache_key(model, first), **body}

    def output_options(self, model: Model, asked: Structured) -> Mapping[str, Any] | None:
        """The schema as ``response_format``, as ``ChatOpenAI`` sends it; a tool call where that is asked for."""
        options = dict(asked.options)
        strict, method = options.pop("strict", None), options.pop("method", None)
        method = method or ("function_calling" if model.model_id.startswith(TOOLS_ONLY) else "json_schema")
        if method not in METHODS:
            raise ConfigError(f"with_structured_output has no method {method!r}: use {', '.join(METHODS)}")
        if method == "function_calling":
            return None
        return {"response_format": response_format(asked.schema, method, strict), **options}

    def _parser(self, model: Model, request: TransportRequest) -> Callable[[Any], Delta]:
        return partial(delta_of, is_streamed=request.is_streamed)

    @staticmethod
    def _calls(client: Any) -> Any:
        return client.chat.completions

    @staticmethod
    def _arguments(model: Model, request: TransportRequest) -> dict[str, Any]:
        """Pass the whole body as ``extra_body``, so that the JSON does not depend on the SDK's version.

        The SDK would compare each message with the types of all kinds of messages: a tenth of a call's processor time.
        """
        return {
            "model": model.model_id,
            "messages": (),
            "stream": request.is_streamed,
            "extra_body": dict(request.body),
            "timeout": timeout_of(model),
        }

    @staticmethod
    def _is_last(piece: Any) -> bool:
        """True for the chunk with the usage."""
        return piece.usage is not None and not piece.choices

    def batches(self) -> OpenAIBatches | None:
        """See :class:`vinelm.backends.remote.transport.Transport`."""
        return OpenAIBatches()

    def rehearsal(self) -> OpenAITransport:
        """See :class:`vinelm.backends.remote.transport.Transport`."""
        twin = type(self)()
        twin.clients = rehearsing_clients(COMPLETION, *CHUNKS)
        return twin

    def context_tokens(self, model: Model) -> int | None:
        """Return the context length in tokens, if the server's list of models has it, as those of vLLM and SGLang."""
        if model.api_base is None:
            return None
        tokens = None
        with suppress(Exception):  # not every server has this list
            for listed in self.clients.of(model).sync().models.list(timeout=CONNECT_TIMEOUT_S).data:
                if listed.id == model.model_id:
                    tokens = getattr(listed, "max_model_len", None)
        return tokens if isinstance(tokens, int) else None


def create(settings: ProviderSettings) -> RemoteBackend[OpenAITransport]:
    """Create the backend of the catalog's OpenAI-like models; :class:`ConfigError` for invalid settings. Makes no call."""
    for model in settings.models:
        check_options(model, model.options)
        check_base(model)
        if model.api_base is None and model.api_key_env is None:
            named_key(model, "OPENAI_API_KEY")  # raises if it is missing
    return RemoteBackend(settings, OpenAITransport())
