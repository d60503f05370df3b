"""Three example applications routed by VineLM; ``tests/examples_before`` has each graph without it (docs/langgraph.md)."""
