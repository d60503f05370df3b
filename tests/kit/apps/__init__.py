"""Applications: see `kit`."""
