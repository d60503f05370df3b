"""Observations in, annotated trie out. Pure."""
