"""Signals of a request while it runs: how a workflow declares its signals, and the grouping of equal answers into classes."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
