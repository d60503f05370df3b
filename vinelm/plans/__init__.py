"""Plans over an annotated trie: the decision graph, and the fixed plans that a planner has to beat."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
