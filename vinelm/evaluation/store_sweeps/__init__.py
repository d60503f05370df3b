"""Sweeps over the bounds of an objective, tested by the rows of a store, and their consequences for the choice of models."""
