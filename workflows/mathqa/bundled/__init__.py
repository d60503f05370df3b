"""The bundled problems: generated from a seed, each with its exact answer, a calculation of it, and what people get wrong."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
