"""The API for applications and notebooks: :class:`VineLM`, and the functions behind the commands of the command line."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
