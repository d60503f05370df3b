"""The load source named by an application, for sessions to read."""

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
    """Return the load source: a path is read as a file of slowdown curves, applied to our own calls in flight.

    Args:
        load: a function, a monitor, the path of a file that ``vinelm engine calibrate`` wrote, or None.
        engines: those of the catalog.
        others: returns the calls that other processes have in flight, by engine; added to our own if these are the source.
            Functions and engines' reports already include them.
        groups: replica group to its engines. A group without a curve gets that of its engines, if all have one.

    Raises:
        ConfigError: the file has curves of other engines only.
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
    """Return whether the source is a monitor of :data:`NEVER_BLOCK`."""
    return isinstance(source, NEVER_BLOCK)


def without_blocking(source: LoadSource | LoadMonitor | None) -> LoadSource | LoadMonitor:
    """Return a source with the same readings that never blocks; for None, one that uses the latencies of our own calls."""
    return InFlightLoadMonitor() if source is None else BackgroundLoadMonitor(source)
