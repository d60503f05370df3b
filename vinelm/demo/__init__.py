"""The demo on recorded answers of real models, small models on this machine, and tours of features on simulated ones."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
