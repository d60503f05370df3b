"""True if the tokens of a run reach its caller while they are made."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig

_READERS = ("StreamMessagesHandler", "_AstreamEventsCallbackHandler")
"""Classes of the callbacks behind ``stream_mode="messages"`` and ``astream_events``, by name: their modules are internal."""


def streams_tokens(config: RunnableConfig) -> bool:
    """Return whether the caller of a node's run reads the tokens of its models as they come."""
    callbacks: Any = config.get("callbacks") or ()
    handlers = getattr(callbacks, "handlers", callbacks)
    return any(base.__name__ in _READERS for handler in handlers for base in type(handler).__mro__)
