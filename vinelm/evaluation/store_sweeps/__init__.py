"""Sweeps over an objective's limits, tested on a store's results, and their consequences for the choice of models."""
