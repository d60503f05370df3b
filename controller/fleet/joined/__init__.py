"""Connects this process to its fleet: what the process shares with the others, and what its requests report."""
