"""The gateway: a VineLM object served over HTTP with OpenAI's Chat Completions and Responses APIs."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
