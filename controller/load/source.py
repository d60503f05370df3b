"""Converts the argument ``load`` of an application to the load source that sessions read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from vinelm.controller.load.background import BackgroundLoadMonitor
from vinelm.controller.load.load_view import LoadSource
from vinelm.controller.load.monitors import InFlightLoadMonitor, ReportedLoadMonitor
from vinelm.controller.load.slowdown import load_curves, spread_curve
from vinelm.errors import ConfigError
from vinelm.requests.protocols import LoadMonitor

NEVER_BLOCK = (InFlightLoadMonitor, ReportedLoadMonitor, BackgroundLoadMonitor)
"""Monitors that answer almost at once, so that a decision may wait for them."""


def load_source(
    load: LoadSource | LoadMonitor | str | Path | None,
    engines: Collection[str],
    others: Callable[[], Mapping[str, int]] | None = None,
    groups: Mapping[str, Collection[str]] | None = None,
) -> LoadSource | LoadMonitor | None:
    """Return the load source for the argument ``load`` of an application.

    If ``load`` is a path, return a monitor that applies the slowdown curves in this file to the calls in flight. A function, a
    monitor or None is returned unchanged.

    Args:
        load: a function, a monitor, the path of a file that ``vinelm engine calibrate`` wrote, or None.
        engines: the engines of the catalog.
        others: returns the number of calls that other processes have in flight, by engine. A monitor of this process's calls
            (:class:`InFlightLoadMonitor`) adds them to its own count. Any other ``load`` ignores them.
        groups: the engines of each replica group. A group without a curve gets the mean curve of its engines if all of them
            have curves.

    Raises:
        ConfigError: the file has no curve of these engines.
    """
    if isinstance(load, InFlightLoadMonitor):
        load.others = others or load.others
    if not isinstance(load, str | Path):
        return load
    curves = load_curves(load)
    for group, replicas in (groups or {}).items():
        if group not in curves and set(replicas) <= set(curves):
            curves[group] = spread_curve([curves[engine] for engine in replicas])
    if not set(engines) & set(curves):
        there, wanted = (", ".join(sorted(names)) or "no engine" for names in (curves, engines))
        raise ConfigError(f"{load}: has curves of {there}, the catalog's engines are {wanted}: calibrate one of them")
    monitor = InFlightLoadMonitor(curves)
    monitor.others = others
    return monitor


def never_blocks(source: LoadSource | LoadMonitor | None) -> bool:
    """Return whether the source is one of VineLM's load monitors that answer at once (:data:`NEVER_BLOCK`)."""
    return isinstance(source, NEVER_BLOCK)


def without_blocking(source: LoadSource | LoadMonitor | None) -> LoadSource | LoadMonitor:
    """Return a load source that never blocks: it reads ``source`` in the background and returns the last reading.

    If ``source`` is None, return a monitor that uses the latencies of this process's own calls.
    """
    return InFlightLoadMonitor() if source is None else BackgroundLoadMonitor(source)
