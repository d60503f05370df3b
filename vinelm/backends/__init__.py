"""Backends: one package per provider. Each creates LangChain chat models that report the usage of every call."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
