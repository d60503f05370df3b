"""A conversation as alternating turns of the user and the model, as most providers require."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage


def joined_turns(
    messages: Sequence[BaseMessage],
    parts_of: Callable[[BaseMessage], Iterable[dict[str, Any]]],
    *,
    model_role: str = "assistant",
    key: str = "content",
) -> list[dict[str, Any]]:
    """Return the turns of a conversation without its system messages; neighbours of one role, such as the results of parallel
    calls, are one turn.

    Args:
        messages: the conversation.
        parts_of: a message in the provider's format. What it raises is not caught; a message without parts begins no turn.
        model_role: what the provider calls the model's turns; all others are the ``user``'s.
        key: where a turn holds its parts.
    """
    turns: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, SystemMessage):
            continue
        role = model_role if isinstance(message, AIMessage) else "user"
        parts = list(parts_of(message))
        if turns and turns[-1]["role"] == role:
            turns[-1][key] += parts
        elif parts:
            turns.append({"role": role, key: parts})
    return turns
