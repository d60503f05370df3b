"""Code shared by all backends: the base class of chat models, checks of a model's options, token estimates and token counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, NoReturn, Self, TypeVar

from langchain_core.language_models import BaseChatModel, LangSmithParams, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from vinelm.catalog import Model, Price
from vinelm.errors import ConfigError
from vinelm.one_process import refuse_pickle

M = TypeVar("M", bound=BaseChatModel)


def bound_instance(kind: type[M], binding: Any, fields: Mapping[str, Any] = MappingProxyType({})) -> M:
    """Create an instance of the chat model class ``kind`` with this ``binding``, these ``fields``, and defaults for all other
    fields.

    ``binding`` holds what the model needs for one execution of a step; see :class:`BoundChatModel`. Takes about 2 µs, because
    it skips pydantic's validation and LangChain's serialization.
    """
    prototype = _prototype(kind)
    made = kind.__new__(kind)
    object.__setattr__(made, "__dict__", {**prototype.__dict__, **fields, "binding": binding})
    object.__setattr__(made, "__pydantic_fields_set__", {"binding", *fields})
    object.__setattr__(made, "__pydantic_extra__", None)
    object.__setattr__(made, "__pydantic_private__", None)
    return made


class BoundChatModel(BaseChatModel):
    """A chat model that serves one execution of a step of the application. Made by :func:`bound_instance`.

    ``binding`` holds what that execution needs: the catalog's ``model``, the context of the call, and the source of the
    answers.
    """

    binding: Any = Field(default=None, exclude=True, repr=False)

    def __deepcopy__(self, memo: Any = None) -> Self:
        """Return this object itself instead of a copy: it belongs to one execution of a step, and all calls of that execution
        are counted together.
        """
        return self.__copy__()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        refuse_pickle(self)

    @property
    def _identifying_params(self) -> dict[str, Any]:
        # Tracers read either name, and look up the price by it.
        name = langsmith_names(self.binding.model)[1]
        return {"entry": self.binding.model.name, "model": name, "model_name": name}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        """Return the model's parameters that LangChain's traces record."""
        params = super()._get_ls_params(stop=stop, **kwargs)
        provider, name = langsmith_names(self.binding.model)
        params["ls_provider"] = provider
        params["ls_model_name"] = kwargs.get("model") or name
        return params

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | dict[str, Any] | bool | None = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model with tools; ``tool_choice`` is "auto", "none", "any" (or "required"), or a tool's name.

        ``strict`` asks for arguments that match a tool's schema exactly, if the provider can guarantee that.
        """
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=[convert_to_openai_tool(tool, strict=strict) for tool in tools], **kwargs)


@cache
def _prototype(kind: type[BaseChatModel]) -> BaseChatModel:
    prototype = kind.model_construct(binding=None)
    prototype._serialized  # noqa: B018 - LangChain computes it on first use and stores it with the fields: compute it once for all instances
    return prototype


LANGSMITH_PROVIDERS: Mapping[str, str] = MappingProxyType(
    {"bedrock": "amazon_bedrock", "gemini": "google_genai", "vertex": "google_vertexai"}
)
"""The name that LangChain's integrations, and so LangSmith's prices, use for a provider, if it differs from the catalog's."""


def langsmith_names(model: Model) -> tuple[str, str]:
    """Return the provider's name and the model's name that LangSmith uses for ``model``.

    For models of the provider ``langchain``, both come from the model id ``PROVIDER:MODEL``. For a chat model object that the
    application passes in, the provider is the entry's ``engine``.
    """
    if model.provider != "langchain":
        return LANGSMITH_PROVIDERS.get(model.provider, model.provider), model.model_id
    provider, colon, name = model.model_id.partition(":")
    return (provider, name) if colon else (model.engine, model.model_id)


def model_options(model: Model, *known: str) -> Mapping[str, Any]:
    """Return the model's options. Raise :class:`ConfigError` if one of them is not in ``known``, the provider's options."""
    for key in model.options:
        if key not in known:
            raise ConfigError(
                f"model {model.name!r}: unknown option {key!r}: {model.provider} models take {', '.join(known) or 'no options'}"
            )
    return model.options


CHARS_PER_TOKEN = 4
"""Characters per token in estimates, for offline backends and servers that report no usage."""


def estimate_tokens(chars: int) -> int:
    """Estimate the number of tokens of a text from its number of characters. The result is at least 1."""
    return max(1, -(-chars // CHARS_PER_TOKEN))


def counted(value: Any) -> int | None:
    """Return ``value``, a token count from a server, or None if it is not a non-negative whole number."""
    return value if type(value) is int and value >= 0 else None


def seconds_of(value: Any) -> float | None:
    """Return ``value``, a duration in seconds from a server, or None if it is not a finite non-negative number."""
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if 0.0 <= seconds < math.inf else None


@dataclass(frozen=True, slots=True)
class Counts:
    """Token counts of a call. ``cached`` is part of ``tokens_in``, ``reasoning`` is part of ``tokens_out``. None means unknown.

    ``written`` is the part of ``tokens_in`` that was written to a prompt cache. Of these tokens, ``written_1h`` stay cached for
    an hour; for ``unsplit`` tokens the server does not state how long they stay. ``audio`` and ``audio_out`` are the audio
    tokens of prompt and answer, None if the server does not state them.
    """

    tokens_in: int
    tokens_out: int
    cached: int | None = None
    reasoning: int | None = None
    written: int = 0
    written_1h: int = 0
    unsplit: int = 0
    audio: int | None = None
    audio_out: int | None = None

    def usd(self, price: Price, *, asks_for_an_hour: bool, hears: bool = False, speaks: bool = False) -> float:
        """Return the cost of the call in dollars at this ``price``.

        Args:
            price: The price of the model.
            asks_for_an_hour: Whether the prompt asked to be cached for an hour. Tokens that were written to the cache are then
                charged at the rate for an hour, unless the server states another duration.
            hears: Whether the prompt contains audio. If the server does not state the number of audio tokens, the whole prompt
                is charged as audio.
            speaks: Whether the answer may contain audio. If the server does not state the number of audio tokens, the whole
                answer is charged as audio.
        """
        hour = self.written_1h + (self.unsplit if asks_for_an_hour else 0)
        audio = self.audio if self.audio is not None else self.tokens_in * hears
        audio_out = self.audio_out if self.audio_out is not None else self.tokens_out * speaks
        sound = {"tokens_audio": audio, "tokens_audio_out": audio_out}
        return price.cost_usd(self.tokens_in, self.tokens_out, self.cached or 0, self.written, hour, **sound)

    @classmethod
    def stated(
        cls,
        tokens_in: Any,
        tokens_out: Any,
        cached: Any = None,
        reasoning: Any = None,
        *,
        written: Any = None,
        written_5m: Any = None,
        written_1h: Any = None,
        audio: Any = None,
        audio_out: Any = None,
    ) -> Counts | None:
        """Return the token counts that a server reports, or None if the count of the prompt or of the answer is invalid.

        The arguments are the fields of :class:`Counts` as the server states them. ``written_5m`` is the number of tokens that
        the cache keeps for five minutes; they are part of ``written``.

        Some servers count a prompt without its cached part, or an answer without its reasoning. So a part that is larger than
        its whole is added to the whole. If counts contradict each other, the more expensive interpretation is used.
        """
        whole_in, whole_out = counted(tokens_in), counted(tokens_out)
        if whole_in is None or whole_out is None:
            return None
        read, thought = counted(cached), counted(reasoning)
        minutes, hour = counted(written_5m) or 0, counted(written_1h) or 0
        stored = max(counted(written) or 0, minutes + hour)
        if max(read or 0, stored) > whole_in:
            whole_in += (read or 0) + stored
        if thought is not None and thought > whole_out:
            if not whole_out:  # no answer tokens, but reasoning: what that means is unknown
                return None
            whole_out += thought
        return cls(
            whole_in,
            whole_out,
            None if read is None else min(read, whole_in - stored),
            thought,
            stored,
            hour,
            max(stored - hour - minutes, 0),
            None if (sound := counted(audio)) is None else min(sound, whole_in),
            None if (sound := counted(audio_out)) is None else min(sound, whole_out),
        )
