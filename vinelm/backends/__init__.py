"""Backends: one package per provider, each giving ordinary LangChain chat models that report what a call used."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
