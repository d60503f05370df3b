"""Math problems: answer, check the own calculation, reflect and answer again."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
