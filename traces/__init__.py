"""The observation store (SQLite), and imports of recorded outcomes into it."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
