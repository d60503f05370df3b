"""Deprecated: see :mod:`vinelm.controller`."""

from vinelm.deprecation import moved

__getattr__ = moved(
    __name__,
    {
        "load_curves": "vinelm.controller.load_curves",
    },
)
