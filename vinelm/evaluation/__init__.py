"""Evaluation of policies: VineLM and its baselines, served or replayed on the same requests, and compared statistically."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
