"""The path of a request: its storage with the application's checkpoints, and the outcomes of its invocations."""
