"""Reference workflows and their registry."""
