"""The LangGraph adapter: stages and routes that follow a policy, and the loading of a workflow's graph."""

from vinelm.whole_imports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
