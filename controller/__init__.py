"""The controller: makes plans over an annotated trie, and gives each request a session that follows its plan."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
