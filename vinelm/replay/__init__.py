"""Computes where the money goes from recorded LLM calls, and proves that a cheaper plan answers as well."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
