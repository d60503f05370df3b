"""Hashes of prompts ("shapes"), which show what prompts have in common and what a provider's cache should keep."""
