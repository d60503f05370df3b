"""Validation on held-out rows: estimates a fitted model's errors, and the optimism of choosing the best plan."""
