"""Stops a replay before it runs a node or tool again that must not run twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler

from vinelm.profiler.execution.replayed.policy import ReplayPolicy


class RepeatGuard(BaseCallbackHandler):
    """Told by LangChain of every node and tool that starts.

    Args:
        policy: of the unit.
        names: the nodes and tools that must not run again.
    """

    raise_error = True
    run_inline = True

    def __init__(self, policy: ReplayPolicy, names: tuple[str, ...]) -> None:
        self._policy, self._names = policy, frozenset(names)

    def on_tool_start(self, serialized: Mapping[str, Any] | None, input_str: str, **kwargs: Any) -> None:
        """See LangChain."""
        self._refuse(kwargs.get("name") or (serialized or {}).get("name"))

    def on_chain_start(self, serialized: Mapping[str, Any] | None, inputs: Any, **kwargs: Any) -> None:
        """See LangChain."""
        node = (kwargs.get("metadata") or {}).get("langgraph_node")
        if kwargs.get("name") == node:
            self._refuse(node)

    def _refuse(self, name: Any) -> None:
        if name in self._names and self._policy.is_replaying:
            raise self._policy.refused(str(name))


__all__ = ["RepeatGuard"]
