"""Writes a new VineLM project for an application: a catalog of models and a workflow file, filled in from the application's
graph.
"""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
