"""Policies that need no planner, the recording that all policies share, and the guard of a request's money."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
