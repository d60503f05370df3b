"""The gateway: serves OpenAI's Chat Completions and Responses APIs over HTTP. A :class:`~vinelm.VineLM` answers each
call.
"""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
