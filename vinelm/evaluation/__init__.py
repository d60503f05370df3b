"""Compares policies: plans and baselines, run or replayed on the same requests, and what may be claimed from it."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
