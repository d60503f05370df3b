"""The profiler: runs a sample of requests along a sample of model choices, under a budget. Only this part spends money."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
