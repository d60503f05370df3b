"""A summary of a fleet at one moment, by engine, as `vinelm fleet top` displays it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vinelm.controller.fleet.loop.leadership import LOCK, ORDERS
from vinelm.controller.fleet.loop.order_bytes import COMMON, local_orders
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.controller.fleet.snapshot import LiveState
from vinelm.controller.fleet.view import FleetView


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The status of one engine.

    Attributes:
        engine: the engine's name; for calls that wait in the queue of a replica group, the group's name.
        group: the engine's replica group; the engine's own name if it belongs to no group.
        running, queued: the number of live calls that run or wait.
        longest_wait_s: the longest waiting time of a queued call, in seconds; NaN if none is queued.
        mean_run_s: the mean time since running calls were sent, in seconds; NaN if none is running.
        late: the number of live calls whose requests are not expected to meet their deadline.
        rest_usd: the expected remaining cost of the requests on this engine, in dollars; unknown costs count as 0.
        weight: the engine's weight in the orders; 1 by default.
    """

    engine: str
    group: str
    running: int
    queued: int
    longest_wait_s: float
    mean_run_s: float
    late: int
    rest_usd: float
    weight: float


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """The status of a fleet at one moment.

    Attributes:
        processes: number of live processes.
        live: number of live calls.
        leader: name of the loop that leads; empty if none does.
        version: the orders' version; 0 if there are none.
        catalogs: number of different catalogs of the processes; 0 if no process has published its catalog.
        engines: the status of each engine, in alphabetical order, with the replicas of a group together.
    """

    processes: int
    live: int
    leader: str
    version: int
    catalogs: int
    engines: tuple[EngineStatus, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the status as plain JSON types."""
        return asdict(self)


def fleet_status(link: RedisLink, view: FleetView, catalogs: int = 0) -> FleetStatus:
    """Return a summary of the calls in a view, with the leading loop and the version of the orders.

    ``catalogs`` is the number of different catalogs among the view's processes; see :meth:`FleetReader.catalogs`.

    Raises:
        FleetUnreachable: Redis does not answer.
        VineLMError: the orders were written by another version of VineLM.
    """
    version, common = link.fields(ORDERS, "version", COMMON)
    weights = {} if common is None else local_orders(common, None).weights
    queued, running = (view.count_by_engine(state) for state in (LiveState.QUEUED, LiveState.RUNNING))
    size = len(view.engines)
    waits = np.where(view.state == LiveState.QUEUED, view.waited_s, -math.inf)
    longest = np.full(size, -math.inf)
    np.maximum.at(longest, view.engine, waits)
    runs = np.bincount(view.engine, view.running_s * (view.state == LiveState.RUNNING), size)
    late = np.bincount(view.engine[view.slack_s < 0], minlength=size)
    dollars = np.bincount(view.engine, np.nan_to_num(view.rest_usd), size)
    engines = [
        EngineStatus(
            engine=name,
            group=view.groups[place],
            running=int(running[place]),
            queued=int(queued[place]),
            longest_wait_s=float(longest[place]) if queued[place] else math.nan,
            mean_run_s=float(runs[place] / running[place]) if running[place] else math.nan,
            late=int(late[place]),
            rest_usd=float(dollars[place]),
            weight=float(weights.get(name, 1.0)),
        )
        for place, name in enumerate(view.engines)
    ]
    return FleetStatus(
        processes=len(view.processes),
        live=len(view),
        leader=(link.get(LOCK) or b"").decode(),
        version=int(version or 0),
        catalogs=catalogs,
        engines=tuple(sorted(engines, key=lambda one: (one.group, one.engine != one.group, one.engine))),
    )
