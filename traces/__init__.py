"""The observation store (SQLite), and imports of recorded outcomes into it."""

from vinelm.extras import require_extra
from vinelm.whole_imports import attach_stub

require_extra("profile", "a store of observations", "sqlalchemy")

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
