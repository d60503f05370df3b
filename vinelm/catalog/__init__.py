"""Model catalogs: the models that may be chosen, their prices, and the engines that serve them."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
