"""Workflow templates, which describe the steps of a graph: which stage may follow which."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
