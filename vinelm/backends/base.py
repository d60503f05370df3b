"""Chat models by the thousand: one per invocation, without paying for pydantic and LangChain's self-description each time."""

from __future__ import annotations

from dataclasses import dataclass
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


CHARS_PER_TOKEN = 4
"""The fixed rule by which offline backends count tokens. Their usage says that it is an estimate."""


def estimate_tokens(chars: int) -> int:
    """Tokens of a text of that many characters, by the fixed rule: at least 1."""
    return max(1, -(-chars // CHARS_PER_TOKEN))


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens as the provider reports them; None where it does not. ``cached`` is a part of ``tokens_in``."""

    tokens_in: int
    tokens_out: int
    cached: int | None = None
    reasoning: int | None = None
