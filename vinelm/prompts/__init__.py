"""Prompts as shapes: which parts of them many calls share, and where a provider's cache is asked to keep them."""
