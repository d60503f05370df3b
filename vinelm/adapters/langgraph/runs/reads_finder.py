"""Finds the prefetched reads (early calls of read-only tools) of the run in which a tool is called."""

from __future__ import annotations

from langgraph.config import get_config

from vinelm.adapters.langgraph.path.path_channel import channel_of
from vinelm.adapters.langgraph.runs.run_context import AMBIENT, carried_by, is_carried, require_request
from vinelm.adapters.langgraph.runs.run_finder import RunFinder, current_runtime
from vinelm.adapters.langgraph.runs.run_reads import forget_where_retried, reads_of
from vinelm.adapters.tools.read_ahead import ReadAhead
from vinelm.adapters.tools.shadow import IS_AHEAD
from vinelm.errors import VineLMError
from vinelm.money.bound_guard import BoundGuard
from vinelm.requests.protocols import CallGuard


class ReadsFinder:
    """Finds the prefetched reads (:class:`ReadAhead`) of the run around a tool's call, by the surrounding node or by the
    surrounding ``with vine.request(...)``.
    """

    __slots__ = ("_finder",)

    def __init__(self, finder: RunFinder) -> None:
        self._finder = finder

    def here(self) -> ReadAhead | None:
        """Return the prefetched reads of the current run, created if needed.

        Returns None outside of a run, within a prefetch, while a profile runs, and in the run of another ``VineLM``. Also None
        if no tool is declared and no calls are recorded.
        """
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

    def guard(self, name: str) -> CallGuard | None:
        """Return the guard that must authorize the cost of a call of the tool ``name`` outside of this adapter's runs.

        The call then belongs to the run of another ``VineLM``, whose cap still applies, or to no run.

        Returns:
            The guard; None if the call's cost counts under no cap.

        Raises:
            CallRefused: the call may belong to a request whose cap is unknown here.
        """
        try:
            runtime = current_runtime()
            carried = carried_by(None if runtime is None else runtime.context)
            require_request(carried, self._finder.settings, f"tool {name!r}")
            is_outside = (runtime is None or runtime.control is None) and AMBIENT.get() is None
            if is_outside and self._finder.settings.account_of is not None and not is_carried():
                return self._finder.settings.account_of(carried)  # which knows no tenant
            if is_outside or carried.chat_host is not None:
                return None
            finder = self._finder if carried.owner.adapter is None else carried.owner.adapter.finder
            guard: CallGuard | None = finder.run_here(None if runtime is None else get_config(), runtime, None).guard
        except VineLMError:
            raise
        except Exception:  # the boundary of a tool
            if self._finder.settings.on_error == "raise":
                raise
            return BoundGuard(None, None, lambda what, error: None) if self._finder.settings.has_caps else None
        return guard

    def known(self) -> ReadAhead | None:
        """Return the prefetched reads of the current run; None outside of a run, and if the run has not created any yet."""
        if IS_AHEAD.get():
            return None
        runtime = current_runtime()
        channel = None if runtime is None else channel_of(get_config())
        control = None if runtime is None else runtime.control
        opening = None if channel is None else channel.opening
        run = self._finder.runs.begun(opening, AMBIENT.get() if control is None else control)
        return None if run is None else run.reads
