"""Validation on held-out rows: the errors of a fitted model, and the optimism of choosing the best plan."""
