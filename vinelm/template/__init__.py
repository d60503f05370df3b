"""Workflow templates: the steps that a graph takes, and which stage may follow which."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
