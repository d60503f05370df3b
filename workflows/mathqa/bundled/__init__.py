"""The bundled problems: generated from a seed, each with its exact answer, a calculation of it, and what people get wrong."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
