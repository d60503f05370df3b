"""Evaluation of policies: serves or replays VineLM and its baselines on the same requests, and compares the results."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
