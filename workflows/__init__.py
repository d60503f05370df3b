"""Reference workflows with dataset, scorer and graph, and a registry that finds a workflow by name."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
