"""The LangGraph adapter: stages and routes that ask a policy, and the loading of a workflow's graph."""

from vinelm.adapters.langgraph.build import build_graph, refuse_unsupported
from vinelm.adapters.langgraph.channel import PATH_KEY
from vinelm.adapters.langgraph.context import RunContext
from vinelm.adapters.langgraph.control import GraphControl

__all__ = ["PATH_KEY", "GraphControl", "RunContext", "build_graph", "refuse_unsupported"]
