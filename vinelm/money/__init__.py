"""Caps on dollars: who may make a call, how it is booked until its price is known, and bounds that follow spending."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
