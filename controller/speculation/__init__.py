"""Decides which tool calls to prefetch, by a rule that depends only on probabilities, seconds and dollars."""
