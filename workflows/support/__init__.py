"""Support desk: a router, three branches of which two use real tools, and a reply. The bundled tickets are generated."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
