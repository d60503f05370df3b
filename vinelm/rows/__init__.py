"""Observations: one recorded row for each invocation of a stage by a request, with its result, cost and latency."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
