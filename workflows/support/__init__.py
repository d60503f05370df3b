"""The workflow of a support desk: a router, three branches, of which two use tools, and a reply. The tickets are generated."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
