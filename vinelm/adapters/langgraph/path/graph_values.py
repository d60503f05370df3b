"""Reads the state of a graph as its nodes or edges see it: the values of its channels, except LangGraph's internal channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.channels.base import BaseChannel
from pydantic import BaseModel

from vinelm.adapters.langgraph.path.path_channel import PATH_KEY, raw_channels

_READ = "__pregel_read"
_OF_LANGGRAPH = ("__", "branch:", "join:")
"""Prefix of the names of LangGraph's own channels."""


def channels_of(config: RunnableConfig) -> Mapping[str, BaseChannel[Any, Any, Any]]:
    """Return the channels of a node's or edge's graph, by key of the state; empty if LangGraph hides them."""
    given = (raw_channels(config) or {}).items()
    return {name: channel for name, channel in given if name != PATH_KEY and not name.startswith(_OF_LANGGRAPH)}


def graph_values(config: RunnableConfig, own: Any, *, fresh: bool) -> Mapping[str, Any]:
    """Return the whole state of the graph, even if the node or edge takes only a part. Keys without a value are left out.

    Args:
        config: LangGraph's config of the node or edge.
        own: the state that LangGraph passed; used if this version of LangGraph hides its channels.
        fresh: whether to include what the current node has just written, as an edge needs; otherwise the state is as it was
            before this superstep.
    """
    names = list(channels_of(config))
    if not names:
        return as_mapping(own)
    return dict(config["configurable"][_READ](names, fresh))


def as_mapping(state: Any) -> Mapping[str, Any]:
    """Return a state (a mapping, pydantic model or dataclass) as a mapping; an empty one for any other type."""
    if isinstance(state, Mapping):
        return state
    if isinstance(state, BaseModel):
        return dict(state)
    if is_dataclass(state) and not isinstance(state, type):
        return {one.name: getattr(state, one.name) for one in fields(state) if hasattr(state, one.name)}
    return {}
