"""One call of the chosen model: tools and schemas in its own form, and another model after a failure."""
