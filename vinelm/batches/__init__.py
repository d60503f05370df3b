"""Runs an application on all requests of a data set, within a budget and a deadline that they share."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
