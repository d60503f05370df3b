"""Estimating tries whose histories are merged (docs/estimators.md): what is remembered, masses, rates."""
