"""Where units run, and what they may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from vinelm.errors import ConfigError
from vinelm.profiler.execution.job import Isolation, LocalWorker, Worker
from vinelm.profiler.isolation.workflow_source import WorkflowSource

if TYPE_CHECKING:
    from vinelm.profiler.execution.unit import UnitWorker

DEFAULT_TIMEOUT_S = 600.0
DEFAULT_MEMORY_MB = 2048


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig:
    """``process``: a fresh process per unit, forked from one that has everything loaded; what the workflow's code does there,
    crashes included, becomes a row. Needs ``source``, because a workflow made in code cannot be made again elsewhere.
    ``thread`` and ``inline`` (this very thread) are for trusted code.

    ``timeout_s`` and ``memory_mb`` (0: no limit) bound one unit, in processes only. :class:`ConfigError` for what
    has no effect.
    """

    isolation: Isolation = "inline"
    workers: int = 1
    source: WorkflowSource | None = None
    timeout_s: float | None = None
    memory_mb: int | None = None

    def __post_init__(self) -> None:
        if self.isolation not in get_args(Isolation):
            raise ConfigError(f"unknown isolation {self.isolation!r}: use {', '.join(get_args(Isolation))}")
        if self.workers < 1:
            raise ConfigError(f"workers is {self.workers}: it must be at least 1")
        if self.isolation == "inline" and self.workers > 1:
            raise ConfigError("inline runs one unit at a time: use --isolation thread, or one worker")
        if self.isolation == "process" and self.source is None:
            raise ConfigError(
                "a workflow made in code cannot run in fresh processes: name it as module:attribute, or use --isolation thread"
            )
        for name, value in (("a unit timeout", self.timeout_s), ("a memory limit", self.memory_mb)):
            if value is not None and self.isolation != "process":
                raise ConfigError(f"{name} has no effect with --isolation {self.isolation}: use process, or leave it out")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ConfigError(f"the unit timeout is {self.timeout_s} s: it must be > 0")
        if self.memory_mb is not None and self.memory_mb < 0:
            raise ConfigError(f"the memory limit is {self.memory_mb} MiB: it must be >= 0")

    @property
    def threads(self) -> int | None:
        """How many units at a time on threads of their own; None: on the caller's."""
        return None if self.isolation == "inline" else self.workers

    def worker(self, units: UnitWorker, fingerprint: Mapping[str, str]) -> Worker:
        """What runs the units. Starts a process where they run in processes; :meth:`Worker.close` ends it."""
        if self.isolation != "process":
            return LocalWorker(units)
        from vinelm.backends import gates_of
        from vinelm.profiler.isolation.process_worker import ProcessWorker, UnitLimits

        assert self.source is not None
        bounds = UnitLimits(
            DEFAULT_TIMEOUT_S if self.timeout_s is None else self.timeout_s,
            DEFAULT_MEMORY_MB if self.memory_mb is None else self.memory_mb,
        )
        control = units.control.models
        return ProcessWorker(
            self.source, units.template, bounds=bounds, fingerprint=fingerprint, is_virtual_time=control.is_virtual_time,
            gates=gates_of(control.catalog, control.backends),
        )  # fmt: skip
