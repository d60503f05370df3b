"""Estimators turn observations into an annotated trie. Pure functions: no I/O, no clock, no network."""

import lazy_loader as lazy

from vinelm.extras import require_extra

require_extra("profile", "an estimator", "scipy")

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
