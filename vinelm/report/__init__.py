"""Sweeps and the HTML report."""
