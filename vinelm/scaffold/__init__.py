"""Writes a new project for an application: a catalog and a workflow file, as complete as the graph allows."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
