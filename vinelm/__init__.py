"""VineLM chooses the model of every stage invocation of a LangGraph application while a request runs."""

import lazy_loader as lazy

from vinelm.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
