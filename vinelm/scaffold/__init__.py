"""A new project for an application: its catalog and its workflow file, as far as they can be read off the graph."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
