"""This process as a part of a fleet: what it shares, and what its requests report."""
