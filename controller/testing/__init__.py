"""For tests: the planner's specification, random questions, and a contract suite for load monitors."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
