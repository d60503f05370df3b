"""Verdicts on whether to switch plans: from the results in a store, or by serving requests under each plan."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
