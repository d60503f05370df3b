"""What the fork server does ahead of all units, so that no unit repeats it: imports, types built on first use, TLS contexts."""

from __future__ import annotations

from collections.abc import Iterable

from vinelm.profiler.execution.unit import warm_up
from vinelm.requests.protocols import Backend, Preloads


def preload(backends: Iterable[Backend]) -> None:
    """Run a trivial graph, and let each backend do the work of its first call. Calls no model.

    Tracing is off meanwhile: a tracer would start threads, which do not survive a fork, and send what is no request.
    """
    from langsmith import tracing_context

    with tracing_context(enabled=False):
        warm_up()
        for backend in backends:
            if isinstance(backend, Preloads):
                backend.preload()
