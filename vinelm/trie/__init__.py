"""The execution trie: every sequence of model choices that a template allows."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
