"""Estimates a policy's results from stored rows of other choices of models: pure statistics."""
