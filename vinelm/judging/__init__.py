"""A model that judges answers where no label exists: how a workflow declares it, and what it said."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
