"""Support desk: a router, three arms of which two use real tools, and a reply. The bundled tickets are generated."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
