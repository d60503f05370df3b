"""Model catalogs: the models that may be chosen, their prices, and the engines that serve them."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
