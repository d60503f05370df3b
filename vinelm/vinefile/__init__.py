"""Writes, reads and checks ``.vine`` files, each of which contains an annotated trie."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
