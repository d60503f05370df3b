"""Worlds whose truth is known: see `kit`."""
