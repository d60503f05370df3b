"""Applications as people write them, each in a file of its own."""
