"""What ordered_effects.py compares, and how it is scored."""
