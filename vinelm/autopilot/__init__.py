"""Moves an application to cheaper models while it serves: only proven plans are served, and they are watched."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
