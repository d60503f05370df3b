"""A stage's own update with its path entry added, whatever form the stage returned it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langgraph.types import Command, Send

from vinelm.adapters.langgraph.path_channel import PATH_KEY, Entry
from vinelm.errors import WorkflowError


def with_entry(out: Any, entry: Entry, stage: str) -> Any:
    """``out`` and the entry as one update of one node, so that LangGraph writes both or neither."""
    mine = {PATH_KEY: [entry]}
    if out is None:
        return mine
    if isinstance(out, dict):
        return {**out, **mine}
    if isinstance(out, Command):
        return _with_command(out, mine, stage)
    if isinstance(out, Send):
        return Command(update=mine, goto=out)
    if isinstance(out, (list, tuple)):
        for item in out:
            _refuse_parent(item, stage)
        return [*out, Command(update=mine)]
    return [out, Command(update=mine)]


def _with_command(out: Command[Any], mine: dict[str, Any], stage: str) -> Any:
    _refuse_parent(out, stage)
    if out.update is None:
        return replace(out, update=mine)
    if isinstance(out.update, Mapping):
        return replace(out, update={**out.update, **mine})
    return [out, Command(update=mine)]


def _refuse_parent(item: Any, stage: str) -> None:
    if isinstance(item, Command) and item.graph is not None:
        raise WorkflowError(f"stage {stage!r} returned Command(graph=...): a stage must be a node of the root graph")
