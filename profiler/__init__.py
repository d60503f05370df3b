"""The profiler: runs a sample of requests down a sample of model choices, under a budget. The one part that spends money."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
