"""Simple baselines for choosing models, which a planner has to beat: fitted and tested on the same observations."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
