"""The stages of a compiled graph: which may follow which, the template that says so, and its text."""
