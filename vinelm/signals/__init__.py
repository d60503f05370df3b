"""Signals of a request while it runs: how a workflow declares them, and classes of equal answers."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
