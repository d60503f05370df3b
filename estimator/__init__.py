"""Estimators turn observations into an annotated trie. Pure functions: no I/O, no clock, no network."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
