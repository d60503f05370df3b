"""Predicts an application's next reads (read-only tool calls) and their arguments from recorded sessions. Pure."""
