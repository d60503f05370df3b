"""Text-to-SQL: generate a query, execute it, repair it."""

import lazy_loader as lazy

from vinelm.extras import require_extra

require_extra("demo", "the bundled SQL workflow", "sqlglot")

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
