"""Three applications as their owners would write them, routed by VineLM; ``before`` holds them without (docs/langgraph.md)."""
