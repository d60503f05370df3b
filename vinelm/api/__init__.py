"""What applications and notebooks call: :class:`VineLM`, and the verbs behind the commands of the command line."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
