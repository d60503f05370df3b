"""A new project for an application: its catalog and its workflow file, as far as they can be read off the graph."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
