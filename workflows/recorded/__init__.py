"""Workflows with recorded models: real outcomes of real models, in tables that come with the package."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
