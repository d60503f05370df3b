"""Drops a run's prefetched reads (early calls of read-only tools) when its graph ends, in whatever way."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any
from uuid import UUID
from weakref import WeakSet

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import register_configure_hook

from vinelm.adapters.tools.read_ahead import ReadAhead
from vinelm.foreign_code import answered

_IN_NODE = "langgraph_node"
"""Key of the metadata of what runs inside a node of a graph."""
_GRAPHS: dict[UUID, UUID] = {}
"""For each chain in progress, the outermost graph around it: the chain itself, unless it runs inside a node."""
_MEMORIES: dict[UUID, WeakSet[ReadAhead]] = {}
"""The stores of prefetched reads that end with a graph, by the run id of the graph."""


class _GraphWatch(BaseCallbackHandler):
    """A LangChain callback that drops the prefetched reads of a graph's run when the graph ends, also if a stream is left
    early.
    """

    run_inline = True
    ignore_llm = ignore_agent = ignore_retriever = ignore_retry = ignore_chat_model = ignore_custom_event = True

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Record to which outermost graph the LangChain run ``run_id`` belongs. A run that is not inside a graph's node is
        recorded as a graph itself.
        """
        is_part = parent_run_id is not None and metadata is not None and _IN_NODE in metadata
        _GRAPHS[run_id] = _GRAPHS.get(parent_run_id, run_id) if is_part and parent_run_id is not None else run_id

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **_: Any) -> None:
        """Drop the prefetched reads of the run of a graph when the graph ends."""
        _ended(run_id)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Drop the prefetched reads when a graph fails, is interrupted or cancelled, or its stream is abandoned."""
        _ended(run_id)


def _ended(chain: UUID) -> None:
    _GRAPHS.pop(chain, None)
    for memory in _MEMORIES.pop(chain, ()):
        answered(memory.end, None)  # an observer may raise if failures are to be raised


_WATCH = _GraphWatch()
_HANDLER: ContextVar[_GraphWatch | None] = ContextVar("vinelm_graph_watch", default=_WATCH)
_IS_REGISTERED: list[bool] = []


def watch_graphs() -> None:
    """Register the callback that notices the end of each graph that begins from now on. The prefetched reads of earlier graphs
    are dropped when their run is garbage-collected.
    """
    if not _IS_REGISTERED:
        _IS_REGISTERED.append(True)
        register_configure_hook(_HANDLER, inheritable=True)


def end_with_graph(memory: ReadAhead) -> None:
    """Arrange that ``memory``, the prefetched reads of a run, is dropped when the graph around this code ends. Does nothing
    outside of a graph's node.
    """
    config = var_child_runnable_config.get() or {}
    if _IN_NODE in (config.get("metadata") or {}):
        graph = _GRAPHS.get(getattr(config.get("callbacks"), "parent_run_id", None))  # type: ignore[arg-type]
        if graph is not None:
            _MEMORIES.setdefault(graph, WeakSet()).add(memory)
