"""The chat model that a stage receives if another model may answer after a failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration
from pydantic import Field

from vinelm.adapters.calls.delegating_model import Attempt, DelegatingChatModel, name_model
from vinelm.errors import UNSUPPORTED_CALL, CallError, InputError
from vinelm.one_process import refuse_pickle

REPEATABLE = ("rate_limit", "timeout", "server", "empty", "truncated", "malformed", "context_length")
"""Kinds of failure after which another call, perhaps of another model, may succeed."""


def failed_call(error: BaseException | None) -> CallError | None:
    """Return the error as a :class:`CallError`; None if the error does not mean that the call failed.

    Content or a parameter that this model does not support counts as a failure with HTTP 400, although nothing was sent.
    """
    if isinstance(error, InputError) and error.code == UNSUPPORTED_CALL:
        return CallError(str(error), kind="malformed")
    return error if isinstance(error, CallError) else None


class Attempts(Protocol):
    """The attempts to answer one invocation; a failed attempt may be followed by an attempt with another model."""

    answering: BaseChatModel
    """The chat model of the present attempt."""

    def fall_back(self, model: BaseChatModel, error: CallError) -> bool:
        """Choose another model after ``model`` has failed and return True; return False if the error should be raised."""


class FallbackModel(DelegatingChatModel):
    """A chat model that calls the chosen model, then the next best model after a failure that another model may avoid.

    Attributes that it lacks (``model_name``, ...) are looked up on the chosen model. Tools and schemas are
    converted for the model that answers. A stream can switch to another model only before its first chunk. Spends money.
    """

    binding: Any = Field(default=None, exclude=True, repr=False)
    """The :class:`Attempts`."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        refuse_pickle(self)

    @property
    def _llm_type(self) -> str:
        chosen: BaseChatModel = self.binding.answering
        return chosen._llm_type

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        chosen: BaseChatModel = self.binding.answering
        return chosen._identifying_params

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        chosen: BaseChatModel = self.binding.answering
        return chosen._get_ls_params(stop=stop, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the chosen model, for a name that this class lacks."""
        if name.startswith("__") or name == "binding":
            raise AttributeError(name)
        return getattr(self.binding.answering, name)

    def _attempt(self, number: int, messages: list[BaseMessage], options: Mapping[str, Any]) -> Attempt:
        while True:
            attempts: Attempts = self.binding
            chosen = attempts.answering
            try:
                return _Attempt(attempts, options, is_first=number == 0)
            except (InputError, NotImplementedError) as error:  # it takes no tools, or no such schema
                failed = failed_call(error)
                if isinstance(error, NotImplementedError):
                    failed = CallError(f"the chat model cannot take the call ({type(error).__name__})", kind="malformed")
                if failed is None or not attempts.fall_back(chosen, failed):
                    raise


class _Attempt(Attempt):
    """One attempt on the current model.

    If the call fails before the caller has received a part of the answer, the with-block suppresses the error, provided that
    :meth:`Attempts.fall_back` finds another model. ``is_first`` is whether this is the call's first attempt. The answers of
    later attempts state the name of their model, since LangChain's tracing knows only the first model.
    """

    __slots__ = ("_attempts", "_chosen", "_is_first")

    def __init__(self, attempts: Attempts, options: Mapping[str, Any], *, is_first: bool) -> None:
        self._attempts, self._chosen, self._is_first = attempts, attempts.answering, is_first
        super().__init__(self._chosen, options)

    def saw(self, generation: ChatGeneration) -> None:
        if not (self._is_first or self.is_begun):
            name_model(generation, self._chosen)
        self.is_begun = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        failed = failed_call(error)
        return failed is not None and not self.is_begun and self._attempts.fall_back(self._chosen, failed)
