"""Requests, the workflow that answers them, and the interfaces that users implement."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
