"""How loaded the engines are, and what that does to a call."""

from vinelm.deprecation import moved

__getattr__ = moved(
    __name__,
    {
        "EnginePoller": "vinelm.controller.EnginePoller",
        "OwnLoad": "vinelm.controller.InFlightLoadMonitor",
        "ReportedLoad": "vinelm.controller.ReportedLoadMonitor",
    },
)
