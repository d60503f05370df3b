"""The demo on recorded answers of real models, on small models of this machine, and tours of features with simulated models."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
