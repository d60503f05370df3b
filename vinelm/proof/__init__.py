"""Tests whether a plan loses more than an allowed margin against the current setup's answers ("today's").

Only answers that differ from today's need labels. The package has no side effects.
"""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
