"""Tests whether a plan loses more than a margin against today's answers; needs labels only for answers that differ. Pure."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
