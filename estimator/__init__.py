"""Estimators: they compute an annotated trie from recorded results. Pure functions: no I/O, no clock, no network."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
