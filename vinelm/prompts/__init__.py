"""Prompts as hashed shapes: which parts many calls share, and which of them a provider's cache should keep."""
