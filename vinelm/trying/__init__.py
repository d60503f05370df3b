"""Produces a verdict from an application and its requests in one call: :func:`try_app`, used by ``vinelm try``."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
