"""Plans over an annotated trie: the decision graph of every kind of trie, and the static plans that a planner has to beat."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
