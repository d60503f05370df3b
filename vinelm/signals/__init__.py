"""What a request shows while it runs: how a workflow declares it, and the outcomes that a trie knows."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
