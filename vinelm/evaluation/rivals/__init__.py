"""Simple ways to choose models that a planner has to beat, chosen from the same observations and tested in the same way."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
