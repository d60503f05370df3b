"""One call of the chosen model: tools and schemas in its own form, and another model after a failure."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
