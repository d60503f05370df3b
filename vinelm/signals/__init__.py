"""Signals of a request while it runs: a workflow's declaration, and the outcomes that a trie knows."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
