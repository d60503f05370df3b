"""Three example applications routed by VineLM; ``apps/examples_before`` has each graph without it (docs/langgraph.md)."""
