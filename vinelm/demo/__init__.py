"""The demonstration: profile, estimate, plan, serve and report on a bundled workflow with simulated models."""

from vinelm.extras import require_extra
from vinelm.whole_imports import attach_stub

require_extra("demo", "the demo", "matplotlib", "scipy", "sqlalchemy", "sqlglot")

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
