"""Decides which tools to prefetch: a pure rule over probabilities, seconds and dollars."""
