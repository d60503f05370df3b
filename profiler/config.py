"""What a run may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vinelm.catalog import Catalog
from vinelm.profiler.results import Progress
from vinelm.template import Template


@dataclass(frozen=True)
class Terms:
    """``target`` is the coverage to reach, None for no such goal; ``workers`` None means one unit at a time, on the run's own
    thread; ``is_virtual_time`` that latencies do not pass on the wall.
    """

    template: Template
    catalog: Catalog
    target: float | None
    workers: int | None
    is_virtual_time: bool
    on_progress: Callable[[Progress], None] | None
