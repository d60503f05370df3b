"""Text-to-SQL: generate a query, execute it, repair it."""

from vinelm.extras import require_extra
from vinelm.whole_imports import attach_stub

require_extra("demo", "the bundled SQL workflow", "sqlglot")

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
