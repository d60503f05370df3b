"""Reference workflows with dataset, scorer and graph, and a registry that finds a workflow by name."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
