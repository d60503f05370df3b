"""Prompts as shapes: which parts many calls share, and where to ask a provider's cache to keep them."""
