"""The observation store, and imports of recorded results into it."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
