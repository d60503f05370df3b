"""Adds the path channel, which stores a request's path, to graphs whose stages are chat models.

Such graphs have no wrapped node, which would have added the channel.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any
from weakref import ref

from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph

from vinelm.adapters.langgraph.path.copied import copied
from vinelm.adapters.langgraph.path.inner_trails import MOST_THREADS
from vinelm.adapters.langgraph.path.path_channel import (
    PATH_KEY,
    ChannelSession,
    Entry,
    Note,
    PathChannel,
    PathValue,
    channel_of,
    execution_of,
    raw_channels,
    with_waiting,
)

_CHECKPOINTER = "__pregel_checkpointer"  # LangGraph's, in a task's config


def with_path_channel(graph: CompiledStateGraph[Any, Any, Any, Any]) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the graph with the path channel, so that its checkpoints carry the path of chat models; nodes do not see it."""
    if PATH_KEY in graph.channels:
        return graph
    return copied(graph, channels={**graph.channels, PATH_KEY: PathChannel(dict, PATH_KEY)})


def write_path(config: RunnableConfig, written: list[Entry | Note], *, is_unplanned: bool) -> None:
    """Add the entries ``written`` to the path when the superstep of ``config``'s node has ended; a failing node adds nothing.

    ``is_unplanned`` states that the run uses default models and no template is known.
    """
    channel, node = channel_of(config), execution_of(config)
    assert channel is not None  # as :meth:`ThreadPaths.channel` has found
    assert node is not None
    channel.is_unplanned = is_unplanned
    channel.wait(node, written)


def path_here(config: RunnableConfig) -> tuple[PathValue | None, bool]:
    """Return the path as the node of ``config`` sees it, and whether this execution of the node has added to the path."""
    channel = channel_of(config)
    if channel is None:
        return None, False
    own = channel.waiting_of(execution_of(config))
    return with_waiting(channel.get() if channel.path else None, channel, own), bool(own)


class ThreadPaths:
    """Keeps the path channels of runs whose graph has none, so that resumed runs continue their path.

    The channels are keyed by checkpointer and thread, since tenants with separate checkpointers may use the same thread names.
    They exist in this process only: a graph that other processes resume must have the channel itself. Thread-safe.
    Beyond :data:`MOST_THREADS` threads, the least recently used one is dropped.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, Any], tuple[Callable[[], Any], PathChannel]] = OrderedDict()
        self._lock = Lock()

    def channel(self, config: RunnableConfig) -> PathChannel | None:
        """Return the path channel of a node's run. If the run's graph has none, a channel is added to the run.

        Returns None if this LangGraph version hides the run's channels or the node's task.
        """
        if execution_of(config) is None:
            return None
        found = channel_of(config)
        if found is not None:
            return found
        given = config.get("configurable", {})
        channels = raw_channels(config)
        if channels is None:
            return None
        with self._lock:  # the branches of a fan-out share a channel
            added = channels.get(PATH_KEY)
            if not isinstance(added, PathChannel):
                added = channels[PATH_KEY] = self._continued(given)
        return added

    def _continued(self, given: dict[str, Any]) -> PathChannel:
        fresh = PathChannel(dict, PATH_KEY)
        fresh.opening = ChannelSession(time.monotonic(), is_stored=False)
        thread, checkpointer = given.get("thread_id"), given.get(_CHECKPOINTER)
        if thread is None or checkpointer is None:
            return fresh
        key = id(checkpointer), thread
        owner, last = self._kept.pop(key, (lambda: None, fresh))
        if owner() is checkpointer:  # the id may be that of a deleted checkpointer
            fresh.path, fresh.closed = last.path, last.closed
        self._kept[key] = (ref(checkpointer), fresh)
        while len(self._kept) > MOST_THREADS:
            self._kept.popitem(last=False)
        return fresh
