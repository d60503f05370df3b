"""Evaluation of policies: VineLM and its baselines, served or replayed on the same requests, and compared statistically."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
