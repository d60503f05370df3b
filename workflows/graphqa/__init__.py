"""Questions about a graph: classify, reason, act by code in a sandbox, on your own database or tables."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
