"""The gateway: OpenAI's chat completions and Responses over HTTP; each call is an invocation of :class:`~vinelm.VineLM`."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
