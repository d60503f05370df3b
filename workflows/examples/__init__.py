"""Three example applications routed by VineLM; ``graph_before.py`` is each graph without it (docs/langgraph.md)."""
