"""The workflow MathQA for math problems: answer, check the calculation, reflect and answer again."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
