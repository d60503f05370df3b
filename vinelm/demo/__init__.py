"""The demonstration: profile, estimate, plan, serve and report on a bundled workflow with simulated models."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
