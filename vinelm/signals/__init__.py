"""Signals: what a running request shows without its label. Declares a workflow's signals, and groups equal answers into
classes.
"""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
