"""Simple ways to choose models that any planner has to beat, chosen from the same observations and judged in the same way."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
