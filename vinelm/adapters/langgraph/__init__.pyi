from .adapter import GraphAdapter as GraphAdapter
from .build import build_graph as build_graph
from .build import template_of_graph as template_of_graph
from .runs.run_context import RunContext as RunContext
