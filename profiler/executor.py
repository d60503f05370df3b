"""Makes the worker that an :class:`~vinelm.profiler.config.ExecutionConfig` asks for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

from vinelm.io import can_fork
from vinelm.profiler.config import ExecutionConfig
from vinelm.profiler.execution.job import Worker
from vinelm.profiler.execution.unit import LocalWorker
from vinelm.profiler.execution.units import Units

DEFAULT_TIMEOUT_S = 600.0
DEFAULT_MEMORY_MB = 2048


NO_FORK = (
    "this system cannot fork processes: the units run in threads of this one, so that a crash ends the run, and a unit's time "
    "and memory are not limited"
)
"""What a run says that asks for processes on a system without them."""


def make_worker(
    execution: ExecutionConfig,
    units: Units,
    fingerprint: Mapping[str, str],
    on_note: Callable[[str], None] | None = None,
) -> Worker:
    """Return the worker that runs the units. With ``isolation="process"`` this starts a process; :meth:`Worker.close` ends it.

    Args:
        execution: where the units run.
        units: the runner of this process.
        fingerprint: the workflow's parts; a fresh process that builds another workflow is refused.
        on_note: called with :data:`NO_FORK` where processes are asked for and cannot be forked; without it, that is a warning.
    """
    if execution.isolation != "process":
        return LocalWorker(units)
    if not can_fork():
        (on_note or _warn)(NO_FORK)
        return LocalWorker(units)
    from vinelm.backends import rate_limiters_of
    from vinelm.profiler.isolation.process_worker import ProcessWorker

    judge = None if units.judging is None else units.judging.models
    judges = {} if judge is None else rate_limiters_of(judge.catalog, judge.backends)

    assert execution.source is not None
    return ProcessWorker(
        execution.source,
        units.template,
        timeout_s=DEFAULT_TIMEOUT_S if execution.timeout_s is None else execution.timeout_s,
        memory_mb=DEFAULT_MEMORY_MB if execution.memory_mb is None else execution.memory_mb,
        fingerprint=fingerprint,
        is_virtual_time=units.is_virtual_time,
        rate_limiters=rate_limiters_of(units.catalog, units.backends) | judges,
    )


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=4)
