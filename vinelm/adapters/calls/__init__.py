"""Calls of the chosen model: tools and schemas in the model's own form, and fallback to another model after a failure."""
