"""Compares annotated tries (trees of model sequences with estimated accuracy, cost and latency) with each other."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
