"""Spending caps: which calls may be made, what is charged until a call's cost is known, and cost limits that adapt to real
spending.
"""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
