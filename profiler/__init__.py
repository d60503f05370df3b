"""The profiler: runs sampled requests with sampled model choices, within a budget. Only this package spends money."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
