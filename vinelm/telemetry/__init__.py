"""Spans and metrics for the decisions of policies and the calls of models (docs/observability.md)."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
