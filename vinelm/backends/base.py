"""What all backends share: cheap chat model instances, token estimates and token counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel

M = TypeVar("M", bound=BaseChatModel)


def bound_instance(kind: type[M], binding: Any) -> M:
    """Create an instance of a chat model class with this ``binding`` and default values for all other fields.

    Skips pydantic's validation and LangChain's serialization, which would be repeated for every invocation. Takes about 2 µs.
    """
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
    prototype._serialized  # noqa: B018 - LangChain computes it on first use and stores it with the fields: compute it once for all instances
    return prototype


CHARS_PER_TOKEN = 4
"""Characters per token in estimates, for offline backends and servers that report no usage."""


def estimate_tokens(chars: int) -> int:
    """Estimate the tokens of a text from its number of characters; at least 1."""
    return max(1, -(-chars // CHARS_PER_TOKEN))


@dataclass(frozen=True, slots=True)
class Counts:
    """Token counts of a call. ``cached`` is included in ``tokens_in``, ``reasoning`` in ``tokens_out``; None if unknown.

    ``written`` is the part of ``tokens_in`` that was written to a prompt cache, ``written_1h`` what of it is kept for an hour.
    """

    tokens_in: int
    tokens_out: int
    cached: int | None = None
    reasoning: int | None = None
    written: int = 0
    written_1h: int = 0
