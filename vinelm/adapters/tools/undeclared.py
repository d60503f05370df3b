"""Watches calls of undeclared tools, each of which makes earlier prefetches stale."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from uuid import UUID
from weakref import WeakSet

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from vinelm.adapters.tools.read_ahead import ReadAhead
from vinelm.adapters.tools.shadow import OURS
from vinelm.foreign_code import answered

IN_DECLARED: ContextVar[ReadAhead | None] = ContextVar("vinelm_in_declared_tool", default=None)
"""The prefetched reads of the run that called the declared tool in progress; None outside of one. The run ignores undeclared
tools called inside, since the declaration covers their effects. Runs that begin inside the tool have separate reads.
"""
OURS.add(IN_DECLARED)


class Watch:
    """Holds the function ``find``. It returns the prefetched reads of the run that makes the current tool call, or None if no
    run is known.
    """

    def __init__(self, find: Callable[[], ReadAhead | None]) -> None:
        self.find = find


class _ToolWatch(BaseCallbackHandler):
    """A LangChain callback that reports the calls of undeclared tools to the runs that make them. Its exceptions never fail a
    call.
    """

    run_inline = True
    ignore_llm = ignore_chain = ignore_retriever = ignore_retry = ignore_chat_model = ignore_custom_event = True

    def on_tool_start(
        self, serialized: dict[str, Any], input_str: str, *, run_id: UUID, inputs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Record that an undeclared tool's call begins."""
        for memory in _memories():
            memory.write_begins(run_id)
            memory.undeclared_begins(run_id, str(serialized.get("name", "")), {"*": [input_str]} if inputs is None else inputs)

    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        """Record that an undeclared tool's call has ended."""
        for memory in _memories():
            memory.write_ends(run_id)
            memory.undeclared_ends(run_id, output, is_ok=True)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Record that an undeclared tool's call has failed, perhaps after a write."""
        for memory in _memories():
            memory.write_ends(run_id)
            memory.undeclared_ends(run_id, None, is_ok=False)


def _memories() -> list[ReadAhead]:
    found, told = [], IN_DECLARED.get()
    for watch in list(_WATCHES):
        memory = answered(watch.find, None)
        if memory is not None and memory is not told:
            found.append(memory)
    return found


_WATCHES: WeakSet[Watch] = WeakSet()
_WATCH = _ToolWatch()
_HANDLER: ContextVar[_ToolWatch | None] = ContextVar("vinelm_tool_watch", default=_WATCH)
_IS_REGISTERED: list[bool] = []


def watch_tools(watch: Watch) -> None:
    """Report the calls of undeclared tools to the runs that ``watch`` finds, as long as ``watch`` exists."""
    _WATCHES.add(watch)
    if not _IS_REGISTERED:
        _IS_REGISTERED.append(True)
        register_configure_hook(_HANDLER, inheritable=True)
