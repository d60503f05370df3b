"""The controller: plans over an annotated trie, and one session per request that follows the plan."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
