"""VineLM chooses the model for each LLM call of a LangGraph application while a request runs."""

from vinelm.version import __version__ as __version__
from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
