"""Predicts an application's next reads and their arguments, mined from recorded sessions. Pure."""
