"""Policies that choose models without planning, and the base class that records invocations for all policies."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
