"""Validation on held-out results: estimates a fitted model's errors, and the optimism of choosing the best plan."""
