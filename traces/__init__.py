"""Keeps what was bought: the observation store, and what can be imported into one."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
