"""Units on the nodes of a Ray cluster: where they are executed changes, and nothing else (docs/decisions/0026-ray.md)."""
