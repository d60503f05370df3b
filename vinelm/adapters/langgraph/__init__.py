"""The LangGraph adapter: stages and routes that ask a policy, and the loading of a workflow's graph."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
