"""Several chat model objects of the application for one catalog entry.

It matters which object is called, because users may have different keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from langchain_core.language_models import BaseChatModel
from pydantic import SecretStr

from vinelm.errors import UNSUPPORTED_CALL, WorkflowError

_HOW = frozenset(
    {
        "temperature", "top_p", "top_k", "stop", "stop_sequences", "seed", "presence_penalty", "frequency_penalty", "n",
        "callbacks", "tags", "metadata", "verbose", "cache", "name", "rate_limiter", "disable_streaming", "profile",
        "model", "model_name", "model_id", "streaming", "stream_usage", "timeout", "request_timeout", "max_retries",
        "max_tokens", "max_completion_tokens", "max_output_tokens", "max_tokens_to_sample", "reasoning", "reasoning_effort",
        "thinking", "verbosity", "logprobs", "top_logprobs", "output_version", "use_responses_api", "disabled_params",
    }
)  # fmt: skip
"""Fields that decide how a model answers; all other fields may decide who asks, and where."""


_CLIENTS = frozenset({"client", "async_client", "root_client", "root_async_client"})
"""Fields that packages fill in from other fields; for AWS also from the environment and profiles."""


def is_alike(one: BaseChatModel, other: BaseChatModel) -> bool:
    """Return whether two chat models with the same name are interchangeable: they have the same keys and the same server.

    Values that cannot be compared count as different.
    """
    return type(one) is type(other) and _told(one) == _told(other)


def _told(chat: BaseChatModel) -> dict[str, Any]:
    own = vars(chat)
    names = {*chat.model_fields_set, *(name for name, value in own.items() if isinstance(value, SecretStr))}
    is_derived = type(chat).__module__.startswith("langchain_") and not type(chat).__module__.startswith("langchain_aws")
    return {name: own.get(name) for name in names - _HOW - (_CLIENTS if is_derived else frozenset())}


class SeveralObjects(BaseChatModel):
    """The chat model of a catalog entry for which the application has several objects that are not interchangeable. It refuses
    all calls.

    It cannot know which of the objects to call; they may have different keys. Only code that uses one of the objects itself can
    call that object. ``entry`` is the entry's name.
    """

    entry: str

    @property
    def _llm_type(self) -> str:
        return "several"

    def refuse(self) -> NoReturn:
        """Raise :class:`WorkflowError`, because it is unknown which of the application's objects to call. Another model of the
        plan may then answer.
        """
        raise WorkflowError(
            f"model {self.entry!r}: the application has made several objects of it, with keys or addresses of their own, and "
            "none is called in place of another: give VineLM(models=...) the one that any request may use",
            code=UNSUPPORTED_CALL,
        )

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """Raise :class:`WorkflowError`, because it is unknown which of the application's objects to call."""
        self.refuse()

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Any:
        """Raise :class:`WorkflowError`, because it is unknown which of the application's objects to call."""
        self.refuse()

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        self.refuse()
