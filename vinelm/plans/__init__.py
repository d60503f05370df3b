"""Plans over an annotated trie: contingent plans, fixed plans (one model per stage), and predictions of accuracy."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
