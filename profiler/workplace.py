"""Deprecated: see :mod:`vinelm.profiler`."""

from vinelm.deprecation import moved

__getattr__ = moved(
    __name__,
    {
        "Workplace": "vinelm.profiler.ExecutionConfig",
    },
)
