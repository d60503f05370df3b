"""Servers and processes: see `kit`."""
