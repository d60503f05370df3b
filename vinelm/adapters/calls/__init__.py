"""Calls to the chosen model: converts tools and schemas to its format, and falls back to another model after a failure."""
