"""Chooses the next model while a request runs."""
