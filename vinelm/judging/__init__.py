"""A model that judges answers without labels: its declaration in a workflow, and its judgements."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
