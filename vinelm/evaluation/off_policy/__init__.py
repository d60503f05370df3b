"""Estimates a policy's results from stored results of other model choices, by pure statistics."""
