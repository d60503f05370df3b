"""Datasets in the formats that people have, as requests of a workflow."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
