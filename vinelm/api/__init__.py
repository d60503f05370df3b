"""What an application and a notebook call: VineLM itself, and the verbs behind the commands."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
