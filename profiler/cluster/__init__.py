"""Units on the nodes of a Ray cluster: only the place of execution changes (docs/decisions/0026-ray.md)."""
