"""Wire formats of the providers: see `kit`."""
