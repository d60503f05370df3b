"""Where the units of a profile run, and how many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from vinelm.errors import ConfigError
from vinelm.profiler.cluster.ray_cluster import RayCluster
from vinelm.profiler.isolation.workflow_source import WorkflowSource

Isolation = Literal["process", "thread", "inline"]
"""Where units run: in a fresh process each, on threads of this process, or on the calling thread."""


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig:
    """Where the units of a profile run, how many at a time, and what each may use.

    Attributes:
        isolation: ``"process"`` runs each unit in a fresh process, forked from one that has loaded everything; whatever the
            workflow's code does there, crashes included, becomes a row. ``"thread"`` and ``"inline"`` (the calling thread)
            are for trusted code.
        workers: the number of units that run at a time; inline only 1.
        source: how a fresh process builds the workflow again; needed for ``"process"``.
        timeout_s: the seconds after which a unit is ended; processes only, default 600.
        memory_mb: the MiB that a unit may use beyond its imports; processes only, default 2048, 0 for no limit.
        cluster: the Ray cluster whose nodes execute the units, in fresh processes there; None for this machine. ``workers`` is
            then the number of units at a time on all nodes together.

    Raises:
        ConfigError: a setting is out of range or has no effect.
    """

    isolation: Isolation = "inline"
    workers: int = 1
    source: WorkflowSource | None = None
    timeout_s: float | None = None
    memory_mb: int | None = None
    cluster: RayCluster | None = None

    def __post_init__(self) -> None:
        if self.isolation not in get_args(Isolation):
            raise ConfigError(f"unknown isolation {self.isolation!r}: use {', '.join(get_args(Isolation))}")
        if self.workers < 1:
            raise ConfigError(f"workers is {self.workers}: it must be at least 1")
        if self.isolation == "inline" and self.workers > 1:
            raise ConfigError('inline runs one unit at a time: use isolation="thread", or workers=1', code="inline-one-worker")
        if self.isolation == "process" and self.source is None:
            raise ConfigError(
                "a workflow built in code cannot run in fresh processes: give a source that builds it by name, or use "
                'isolation="thread"',
                code="process-needs-source",
            )
        if self.cluster is not None and self.isolation != "process":
            raise ConfigError(
                f'units on a cluster run in fresh processes: use isolation="process" instead of {self.isolation!r}',
                code="cluster-needs-process",
            )
        for name, value in (("timeout_s", self.timeout_s), ("memory_mb", self.memory_mb)):
            if value is not None and self.isolation != "process":
                raise ConfigError(
                    f'{name} has no effect with isolation="{self.isolation}": use isolation="process", or leave it out',
                    code="limit-needs-process",
                )
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ConfigError(f"timeout_s is {self.timeout_s}: it must be > 0", code="unit-timeout-range")
        if self.memory_mb is not None and self.memory_mb < 0:
            raise ConfigError(f"memory_mb is {self.memory_mb}: it must be >= 0", code="unit-memory-range")
