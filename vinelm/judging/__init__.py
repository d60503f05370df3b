"""A model that judges answers where no label exists: how a workflow declares it, and what it said."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
