"""The controller: plans over an annotated trie, and one session per request that follows the plan."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
