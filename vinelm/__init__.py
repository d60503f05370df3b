"""VineLM chooses the model of every stage invocation of a LangGraph application while a request runs."""

from vinelm.version import __version__ as __version__
from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
