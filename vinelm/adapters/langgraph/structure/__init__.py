"""What a compiled graph says about its stages: which may follow which, the template that says so, and its text."""
