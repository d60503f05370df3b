"""Reference workflows, each with its dataset, scorer and graph, and the registry that finds any workflow by name."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
