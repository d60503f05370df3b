"""A model that judges answers without labels: how a workflow declares it, and its judgements."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
