"""Executes a profile's jobs on the nodes of a Ray cluster (docs/decisions/0026-ray.md)."""
