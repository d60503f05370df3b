"""What a request shows while it runs: how a workflow declares it, and the outcomes that a trie knows."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
