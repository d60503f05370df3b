"""Sweeps over an objective's bounds, tested on a store's results, and what they imply for the choice of models."""
