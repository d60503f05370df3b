"""Backends: one package per provider. Each creates LangChain chat models that report the usage of every call."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
