"""Cheaper models while an application serves: nothing is served that is not proven, and what is served is watched."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
