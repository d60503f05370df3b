"""Prompts as hashed shapes: which parts many calls share, and which parts a provider's cache should keep."""
