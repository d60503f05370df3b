"""Finds what was read ahead in the run around a tool's call."""

from __future__ import annotations

from langgraph.config import get_config

from vinelm.adapters.langgraph.path.path_channel import channel_of
from vinelm.adapters.langgraph.runs.run_context import AMBIENT, carried_by
from vinelm.adapters.langgraph.runs.run_finder import RunFinder, current_runtime
from vinelm.adapters.langgraph.runs.run_reads import forget_where_retried, reads_of
from vinelm.adapters.tools.read_ahead import ReadAhead
from vinelm.adapters.tools.shadow import IS_AHEAD


class ReadsFinder:
    """Finds the memory of a run by the node that a call is made in, or by the ``with vine.request(...)`` around it."""

    __slots__ = ("_finder",)

    def __init__(self, finder: RunFinder) -> None:
        self._finder = finder

    def here(self) -> ReadAhead | None:
        """Return it, made if it is new; None outside of a run, in a profiled one, and in that of another ``VineLM``."""
        if IS_AHEAD.get():
            return None
        runtime, settings = current_runtime(), self._finder.settings
        carried = carried_by(None if runtime is None else runtime.context)
        is_outside = (runtime is None or runtime.control is None) and AMBIENT.get() is None
        if is_outside or carried.chat_host is not None or carried.owner.adapter not in (None, settings):
            return None
        config = None if runtime is None else get_config()
        reads = reads_of(self._finder.run_here(config, runtime, None), settings)
        if reads is not None:
            forget_where_retried(reads, runtime)
        return reads

    def known(self) -> ReadAhead | None:
        """Return it where there is one already."""
        if IS_AHEAD.get():
            return None
        runtime = current_runtime()
        channel = None if runtime is None else channel_of(get_config())
        control = None if runtime is None else runtime.control
        opening = None if channel is None else channel.opening
        run = self._finder.runs.begun(opening, AMBIENT.get() if control is None else control)
        return None if run is None else run.reads
