"""Views of fleets that tests write down."""

import numpy as np

from vinelm.controller.fleet.snapshot import LiveState
from vinelm.controller.fleet.view import FleetView

QUEUED, RUNNING = LiveState.QUEUED, LiveState.RUNNING
ENGINES = {"large": "large", "large-1": "large", "large-2": "large", "large-3": "large", "small": "small"}


def view_of(*rows, engines=ENGINES, processes=("p1", "p2")):
    """A view of rows that name what differs: session, engine, process, state and seconds."""
    names = list(engines)

    def column(key, default, kind):
        return np.array([row.get(key, default) for row in rows], kind)

    def places(key, known, default):
        return np.array([known.index(row.get(key, default)) for row in rows], np.int32)

    return FleetView(
        session=np.array([row.get("session", i) for i, row in enumerate(rows)], np.uint64),
        tenant=np.zeros(len(rows), np.int32),
        stage=np.zeros(len(rows), np.int32),
        node=np.zeros(len(rows), np.int32),
        engine=places("engine", names, names[0]),
        process=places("process", list(processes), (*processes, "")[0]),
        state=column("state", RUNNING, np.uint8),
        waited_s=column("waited_s", 0.0, float),
        running_s=column("running_s", 0.0, float),
        elapsed_s=column("elapsed_s", 0.0, float),
        deadline_s=column("deadline_s", np.nan, float),
        rest_s=column("rest_s", np.nan, float),
        rest_usd=column("rest_usd", np.nan, float),
        tenants=("acme",),
        stages=("write",),
        engines=tuple(names),
        processes=tuple(processes),
        groups=tuple(engines.values()),
    )
