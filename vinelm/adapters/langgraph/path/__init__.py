"""Stores the path of a request, and the outcomes of its invocations, with the application's checkpoints."""
