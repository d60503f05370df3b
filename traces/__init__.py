"""The observation store (SQLite), and imports of recorded outcomes into it."""

import lazy_loader as lazy

from vinelm.extras import require_extra

require_extra("profile", "a store of observations", "sqlalchemy")

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
