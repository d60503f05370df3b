"""Starts the hosts of a run on the nodes of a Ray cluster, or raises an error that explains why it cannot."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from vinelm.catalog import Model
from vinelm.errors import ConfigError
from vinelm.extras import require_extra
from vinelm.io.operating_system import can_fork
from vinelm.profiler.cluster.bridge import RayLink
from vinelm.profiler.cluster.messages import HostSetup
from vinelm.profiler.cluster.worker import ClusterWorker
from vinelm.profiler.execution.job import UnitSetup
from vinelm.profiler.scheduling.settings import RayCluster
from vinelm.requests.protocols import RateLimiter
from vinelm.version import __version__


def cluster_worker(
    cluster: RayCluster,
    units: UnitSetup | Callable[[Mapping[str, Any]], Any],
    models: Iterable[Model],
    rate_limiters: Mapping[str, RateLimiter],
    on_note: Callable[[str], None] | None,
    *,
    verb: str,
    unit: str = "unit",
) -> ClusterWorker:
    """Return the worker that executes jobs, or serves requests, on a cluster's nodes; ``close()`` ends the hosts there.

    Args:
        cluster: the cluster.
        units: see :class:`~vinelm.profiler.cluster.messages.HostSetup`.
        models: the models that may be called.
        rate_limiters: the rate limits by model.
        on_note: called with one line when a node is lost.
        verb: the name of the user's command, for messages.
        unit: the word for the worker's jobs in messages.

    Raises:
        MissingExtra: Ray is not installed.
        ConfigError: a model sets ``cache_points``, which has no effect on a cluster; this system cannot fork processes; or the
            cluster cannot be used.
        InputError: a node cannot execute the jobs; the message names the node.
    """
    marked = next((model for model in models if model.cache_points != "off"), None)
    if marked is not None:
        raise ConfigError(
            f"model {marked.name!r}: cache_points = {marked.cache_points!r} has no effect on a Ray cluster, whose nodes do not "
            f"see each other's prompts: leave it out, or {verb} without --engine ray"
        )
    require_extra("ray", f"a {verb} on a Ray cluster", "ray")
    if not can_fork():
        raise ConfigError(
            f"this system cannot fork processes, which a {verb} on a Ray cluster needs: run it from Linux or macOS"
        )
    folder = os.getcwd()
    host = HostSetup(
        version=__version__, units=units, limited=tuple(sorted(rate_limiters)), folder=folder,
        path=tuple(entry or folder for entry in sys.path),
    )  # fmt: skip
    return ClusterWorker(RayLink(cluster, host), rate_limiters, on_note, unit=unit)
