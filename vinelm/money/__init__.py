"""Spending caps: decides which calls may be made and what they are charged, and adapts cost limits to real spending."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
