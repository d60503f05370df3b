"""Simple baseline methods for choosing models, with which VineLM's planner is compared on the same observations."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
