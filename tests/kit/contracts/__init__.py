"""Contracts of our own protocols, as tests: see `kit`."""
