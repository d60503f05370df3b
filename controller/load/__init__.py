"""The load of engines and how it slows calls down."""

from vinelm.deprecation import moved

__getattr__ = moved(
    __name__,
    {
        "EnginePoller": "vinelm.controller.EnginePoller",
        "OwnLoad": "vinelm.controller.InFlightLoadMonitor",
        "ReportedLoad": "vinelm.controller.ReportedLoadMonitor",
    },
)
