"""Makes the worker that an :class:`~vinelm.profiler.config.ExecutionConfig` asks for."""

from __future__ import annotations

from collections.abc import Mapping

from vinelm.profiler.config import ExecutionConfig
from vinelm.profiler.execution.job import Worker
from vinelm.profiler.execution.unit import LocalWorker, UnitRunner

DEFAULT_TIMEOUT_S = 600.0
DEFAULT_MEMORY_MB = 2048


def make_worker(execution: ExecutionConfig, units: UnitRunner, fingerprint: Mapping[str, str]) -> Worker:
    """Return the worker that runs the units. With ``isolation="process"`` this starts a process; :meth:`Worker.close` ends it.

    Args:
        execution: where the units run.
        units: the runner of this process.
        fingerprint: the workflow's parts; a fresh process that builds another workflow is refused.
    """
    if execution.isolation != "process":
        return LocalWorker(units)
    from vinelm.backends import rate_limiters_of
    from vinelm.profiler.isolation.process_worker import ProcessWorker

    assert execution.source is not None
    return ProcessWorker(
        execution.source,
        units.template,
        timeout_s=DEFAULT_TIMEOUT_S if execution.timeout_s is None else execution.timeout_s,
        memory_mb=DEFAULT_MEMORY_MB if execution.memory_mb is None else execution.memory_mb,
        fingerprint=fingerprint,
        is_virtual_time=units.is_virtual_time,
        rate_limiters=rate_limiters_of(units.catalog, units.backends),
    )
