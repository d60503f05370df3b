"""Workflows to profile: see `kit`."""
