"""A new project for an application: its catalog and workflow file, as far as the graph determines them."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
