"""Demos: recorded answers of real models, small models on this machine, and tours with simulated models."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
