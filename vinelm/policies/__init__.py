"""Policies that need no planner, the recording that all policies share, and the guard of a request's money."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
