"""Chat models by the thousand: one per invocation, without paying for pydantic and LangChain's self-description each time."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel

M = TypeVar("M", bound=BaseChatModel)


def bound_instance(kind: type[M], binding: Any) -> M:
    """An instance of ``kind`` whose field ``binding`` is that, and every other field its default. Takes about 2 µs."""
    prototype = _prototype(kind)
    made = kind.__new__(kind)
    object.__setattr__(made, "__dict__", {**prototype.__dict__, "binding": binding})
    object.__setattr__(made, "__pydantic_fields_set__", {"binding"})
    object.__setattr__(made, "__pydantic_extra__", None)
    object.__setattr__(made, "__pydantic_private__", None)
    return made


@cache
def _prototype(kind: type[BaseChatModel]) -> BaseChatModel:
    prototype = kind.model_construct(binding=None)
    prototype._serialized  # noqa: B018 - LangChain computes it on first use and keeps it with the fields: now it is shared
    return prototype
