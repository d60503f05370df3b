"""Clients of model providers, one per file."""
