"""The stages of a compiled graph: their order, the template that expresses it, and its text."""
