"""The demonstration: profile, estimate, plan, serve and report on a bundled workflow with simulated models."""

import lazy_loader as lazy

from vinelm.extras import require_extra

require_extra("demo", "the demo", "matplotlib", "scipy", "sqlalchemy", "sqlglot")

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
