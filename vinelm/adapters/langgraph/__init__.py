"""The LangGraph adapter: stages and routes that ask a policy, and the loading of a workflow's graph."""

from vinelm.adapters.langgraph.adapter import GraphAdapter
from vinelm.adapters.langgraph.build import build_graph, refuse_unsupported
from vinelm.adapters.langgraph.path_channel import PATH_KEY
from vinelm.adapters.langgraph.run_context import RunContext

__all__ = ["PATH_KEY", "GraphAdapter", "RunContext", "build_graph", "refuse_unsupported"]
