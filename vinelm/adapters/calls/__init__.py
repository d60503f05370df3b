"""One call of the chosen model: tools and schemas in its own form, and another model after a failure."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
