"""Workflow for questions about a graph, which models answer by code in a sandbox; with your own database or tables, too."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
