"""Sweeps over the bounds of an objective, judged by the rows of a store, and what follows for the choice of models."""
